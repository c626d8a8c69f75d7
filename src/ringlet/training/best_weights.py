"""The weights of the best epoch beside those of the last: which are kept, and which are in use.

``early_stopping`` and ``model_checkpoint`` say which epoch is the best. Rank 0 keeps a copy of its parameters and
running statistics; when training ends they are put in the place of the last ones, on all ranks. Training itself always
continues from the last ones, so that a run which resumes is the same as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import Floats
from ringlet.errors import UsageError
from ringlet.optim import Best
from ringlet.optim.metric_names import is_maximised
from ringlet.training.observers import RankObserver

if TYPE_CHECKING:
    from ringlet.training.session import Session

Which = Literal["best", "last"]
CLEARLY = 0.1
"""An earlier epoch was clearly better if its loss, or its share of errors, was smaller by this share …"""
CLEAR_POINTS = 0.01
"""… and its accuracy, dice or IoU larger by as much."""


@dataclass(frozen=True)
class BestEpoch:
    """The epoch (from 1) whose weights are the best, how many updates it came after, and by which metric."""

    epoch: int
    step: int
    metric: str
    value: float


@final
class BestWeights(RankObserver):
    """Keeps the weights of a session's best epoch; every rank has one, and must call the same methods."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: dict[Which, Floats] = {}
        """What is not in use; only rank 0 holds it."""
        self.in_use: Which = "last"
        self.step: int | None = None
        """After how many updates the best epoch was over; None if its weights are not there."""

    @property
    def epoch(self) -> BestEpoch | None:
        """The best epoch, if its weights are there."""
        best = self._session.schedule.best
        return None if best is None or self.step is None else BestEpoch(best.epoch, self.step, best.metric, best.value)

    @property
    def lost(self) -> Best | None:
        """The best epoch, if its weights are not there any more."""
        return self._session.schedule.best if self.step is None else None

    def take(self, step: int | None, values: Floats | None) -> None:
        """Begin with the best weights of a run that resumes; rank 0 has the values, all know the step."""
        self._kept, self.in_use, self.step = {}, "last", step
        if values is not None:
            self._kept["best"] = values

    def use(self, which: Which) -> None:
        """Put the best or the last weights in their place; every rank must call."""
        if which not in ("best", "last"):
            raise UsageError(f"weights '{which}': expected best or last")
        if which == self.in_use:
            return
        if self.step is None:
            raise UsageError(
                "there are no best weights: give early_stopping or model_checkpoint as schedule, and train"
            )
        comm = self._session.strategy.comm
        parts = self._parts()
        if comm.rank == 0:
            self._kept[self.in_use] = np.concatenate(parts)
        values = self._kept.pop(which) if comm.rank == 0 else np.empty(sum(map(len, parts)), parts[0].dtype)
        comm.broadcast(values, out=values)
        for part, new in zip(parts, np.split(values, [parts[0].size]), strict=True):
            part[:] = new
        comm.barrier()
        self.in_use = which

    def use_best(self) -> BestEpoch | None:
        """Put the best weights in their place, unless they are the last ones; gives their epoch if there is one."""
        if self.epoch is not None and self.step != self._session.progress.num_steps:
            self.use("best")
        return self.epoch

    def _parts(self) -> list[Floats]:
        replica = self._session.replica
        return [replica.parameters.flat, replica.state.flat]

    # -- during training ----------------------------------------------------------------------------------------------
    def after_step(self) -> None:
        """Nothing: epochs are compared."""

    def take_outputs(self, indices: NDArray[np.int64], outputs: NDArray[Any]) -> None:
        """Nothing: metrics are compared."""

    def after_validation(self, epoch: int) -> None:
        """Nothing: the schedule has not decided yet."""

    def after_epoch(self, *, is_best: bool) -> None:
        """Copy the weights of the best epoch so far."""
        if not is_best:
            return
        self.step = self._session.progress.num_steps
        if self._session.strategy.comm.rank == 0:
            self._kept["best"] = np.concatenate(self._parts())

    def finish(self) -> None:
        """Nothing: who trains decides which weights to use."""

    def abandon(self) -> None:
        """Nothing to close."""


def earlier_was_better(epochs: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> str:
    """In words, if the first metric that was validated was clearly better in an earlier epoch; else empty."""
    name = next((f"val_{own}" for own in (*metrics, "loss") if epochs and f"val_{own}" in epochs[-1]), None)
    if name is None:
        return ""
    values = [row.get(name, float("nan")) for row in epochs]
    upward, last = is_maximised(name), values[-1]
    numbers = [value for value in values if value == value]
    if not numbers:
        return ""
    best = max(numbers) if upward else min(numbers)
    if upward:
        is_clear = best - last > CLEAR_POINTS and 1 - best < (1 - last) * (1 - CLEARLY)
    else:
        is_clear = best < last * (1 - CLEARLY) if last > 0 else best < last
    if not is_clear:
        return ""
    return (
        f"epoch {values.index(best) + 1} was better ({name} {best:.4g}, after the last one {last:.4g}): "
        "--schedule model_checkpoint keeps and uses the best weights"
    )
