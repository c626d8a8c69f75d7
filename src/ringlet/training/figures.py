"""The figures of all shards: one row each, filled by the rank that computed the shard, added up on every rank.

Rows are added in the order of the shards, so the figures of a step do not depend on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import Replica, StepOutput
from ringlet.strategies.contract import Strategy
from ringlet.training.meter import Meter
from ringlet.training.metrics import metric

_INTERRUPTED, _BAD_LOSS, _BAD_GRADIENTS = 0, 1, 2
_NUM_FLAGS = 3


@final
class ShardFigures:
    """Totals of a meter and three flags for every shard; :attr:`rows` is what ranks exchange."""

    def __init__(self, num_shards: int, metrics: Sequence[str]) -> None:
        self._metrics = metrics
        self._width = 2 * len(metrics) + 2
        self.rows = np.zeros((num_shards, _NUM_FLAGS + self._width), np.float64)

    def put(self, shard: int, output: StepOutput, targets: NDArray[Any]) -> None:
        """Add the results of a pass to those of its shard."""
        if output.count:
            sums = [value for name in self._metrics for value in metric(name)(output.outputs, targets)]
            row = self.rows[shard]
            for place, value in enumerate((*sums, output.loss_sum, output.count), _NUM_FLAGS):
                row[place] += value

    def flag(self, shard: int, *, interrupted: bool = False, gradients: NDArray[Any] | None = None) -> None:
        """Note that this rank was asked to stop, and whether loss and gradients are finite.

        The squared norm is one cheap pass; only if that overflows are the gradients looked at one by one.
        """
        row = self.rows[shard]
        if interrupted:
            row[_INTERRUPTED] = 1
        if gradients is not None:
            if not math.isfinite(row[-2]):
                row[_BAD_LOSS] = 1
            if not (math.isfinite(np.dot(gradients, gradients)) or np.isfinite(gradients).all()):
                row[_BAD_GRADIENTS] = 1

    @property
    def interrupted(self) -> bool:
        """Whether a rank was asked to stop."""
        return any(row[_INTERRUPTED] for row in self.rows.tolist())

    def bad_shard(self) -> int | None:
        """The first shard whose loss or gradients are not finite."""
        rows = self.rows.tolist()
        return next((shard for shard, row in enumerate(rows) if row[_BAD_LOSS] or row[_BAD_GRADIENTS]), None)

    def loss_of(self, shard: int) -> float:
        """The mean loss of a shard."""
        total, count = self.rows[shard, -2:].tolist()
        return float(total / max(count, 1.0))

    def meter(self) -> Meter:
        """The figures of all shards together."""
        meter = Meter(self._metrics)
        meter.add_totals(np.add.reduce(self.rows[:, _NUM_FLAGS:], axis=0).tolist())
        return meter


def find_problem(figures: ShardFigures, replica: Replica, strategy: Strategy) -> str | None:
    """What is not finite, in words: the loss or the gradient of which layer, in which shard.

    In lockstep the same on every rank, and every rank must call, after the figures have been agreed on.
    """
    shard = figures.bad_shard()
    if shard is None:
        return None
    loss = figures.loss_of(shard)
    own = _bad_parameter(replica) if shard in strategy.shards else ""
    layer = b"".join(strategy.comm.allgather_bytes(own.encode())).decode() if strategy.lockstep else own
    place = f" in shard {shard} of {strategy.num_shards}" if strategy.num_shards > 1 else ""
    if not math.isfinite(loss):
        return f"the loss is {loss}{place}"
    where = f" of '{layer}'" if layer else ""
    return f"the loss is {loss:.6g}, but the gradient{where} is not finite{place}"


def _bad_parameter(replica: Replica) -> str:
    """The first parameter whose gradient is not finite; nothing if a later shard has overwritten it."""
    return next((name for name, view in replica.gradients.views.items() if not np.isfinite(view).all()), "")
