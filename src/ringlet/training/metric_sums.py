"""Loss and metrics added up over batches, shards and ranks; means weigh by samples.

Every shard has a row, filled by the rank that computed it and added up on every rank, in the order of the shards: so
the metrics of a step do not depend on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import Replica, StepOutput
from ringlet.errors import DataError
from ringlet.metrics import Measure
from ringlet.strategies.finite import GRADIENT_NORM, STATE_NORM, first_not_finite, norm_bound

_INTERRUPTED, _BAD_LOSS = 2, 3
_NUM_FLAGS = 4
"""Columns before the totals: the two norms of :mod:`ringlet.strategies.finite`, which are not finite if a gradient or a
running statistic is not, and two flags."""


LOSS = Measure("loss", 1, lambda _, __: (), lambda sums, count: sums[0] / count)
"""The mean of the loss, whose sums engines give."""


class Meter:
    """Sums of an epoch or an evaluation: of the metrics, then of the loss."""

    def __init__(self, metrics: Iterable[Measure]) -> None:
        self._measures = (*metrics, LOSS)
        self._totals = np.zeros(width_of(self._measures), np.float64)

    @property
    def totals(self) -> list[float]:
        """The sums and the number of samples of each metric: what ranks add up (counts are exact up to 2^53)."""
        totals: list[float] = self._totals.tolist()
        return totals

    def add_totals(self, totals: Sequence[float]) -> None:
        """Take what another meter has seen, by its totals."""
        if len(totals) != self._totals.size:
            raise ValueError(f"{len(totals)} totals for a meter of {self._totals.size}")
        self._totals += totals

    def means(self, prefix: str = "") -> dict[str, float]:
        """Each metric over all samples seen."""
        found, place = {}, 0
        totals = self.totals
        if self.num_samples == 0:
            raise DataError("the mean of a metric over 0 samples does not exist; check that the split is not empty")
        for measure in self._measures:
            end = place + measure.width
            found[prefix + measure.name] = measure.final(totals[place:end], int(totals[end]))
            place = end + 1
        return found

    @property
    def num_samples(self) -> int:
        """How many samples the meter has seen."""
        return int(self._totals[-1])


def width_of(metrics: Iterable[Measure]) -> int:
    """How many totals there are: the sums of every metric, each with the number of samples."""
    return sum(measure.width + 1 for measure in metrics)


@final
class ShardSums:
    """Totals of a meter, two norms and two flags for every shard; :attr:`rows` is what ranks exchange."""

    def __init__(self, num_shards: int, metrics: Sequence[Measure]) -> None:
        self._metrics = metrics
        self.rows = np.zeros((num_shards, _NUM_FLAGS + width_of((*metrics, LOSS))), np.float64)
        self._bad_places: dict[int, str] = {}

    def put(self, shard: int, output: StepOutput, targets: NDArray[Any]) -> None:
        """Add the results of a pass to those of its shard."""
        if output.count:
            sums: list[float] = []
            for measure in self._metrics:
                sums += (*measure.sums(output.outputs, targets), output.count)
            row = self.rows[shard]
            for place, value in enumerate((*sums, output.loss_sum, output.count), _NUM_FLAGS):
                row[place] += value

    def flag(self, shard: int, *, interrupted: bool = False, replica: Replica | None = None) -> None:
        """Note that this rank was asked to stop, and how large gradients and running statistics of a pass are.

        What is not finite is looked for now: the next pass overwrites it.
        """
        row = self.rows[shard]
        if interrupted:
            row[_INTERRUPTED] = 1
        if replica is None:
            return
        gradients, state = replica.gradients.flat, replica.state.flat
        row[GRADIENT_NORM] = of_gradients = norm_bound(gradients)
        of_state = 0.0
        if state.size:
            row[STATE_NORM] = of_state = float(row[-1]) * norm_bound(state)
        row[_BAD_LOSS] = not math.isfinite(row[-2])
        if not (math.isfinite(of_gradients) and math.isfinite(of_state)):
            self._bad_places[shard] = _bad_place(replica)

    @property
    def interrupted(self) -> bool:
        """Whether a rank was asked to stop."""
        return any(row[_INTERRUPTED] for row in self.rows.tolist())

    def bad_shard(self) -> int | None:
        """The first shard whose loss, gradients or running statistics are not finite."""
        return next((shard for shard, row in enumerate(self.rows.tolist()) if not _is_good(row)), None)

    def bad_place(self, shard: int) -> str:
        """What of ``shard`` is not finite, if this rank has computed it."""
        return self._bad_places.get(shard, "")

    def loss_of(self, shard: int) -> float:
        """The mean loss of a shard."""
        total, count = self.rows[shard, -2:].tolist()
        return float(total / max(count, 1.0))

    def meter(self) -> Meter:
        """The metrics of all shards together."""
        meter = Meter(self._metrics)
        meter.add_totals(np.add.reduce(self.rows[:, _NUM_FLAGS:], axis=0).tolist())
        return meter


def _is_good(row: Sequence[float]) -> bool:
    return math.isfinite(row[GRADIENT_NORM]) and math.isfinite(row[STATE_NORM]) and not row[_BAD_LOSS]


def _bad_place(replica: Replica) -> str:
    """The first gradient or running statistic that is not finite."""
    if name := first_not_finite(replica.gradients.views):
        return f"the gradient of '{name}'"
    return f"the running statistic '{first_not_finite(replica.state.views)}'"
