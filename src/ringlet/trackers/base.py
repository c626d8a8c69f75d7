"""What all trackers share: they write on rank 0 alone, open with the first event, and never end a training."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import final

from ringlet.comm import world
from ringlet.errors import FileWriteError
from ringlet.io.disk import Saving
from ringlet.training.events import (
    EpochFinished,
    Evaluated,
    Event,
    PhasesMeasured,
    RunEnded,
    RunResumed,
    RunStarted,
    StalenessMeasured,
    StepFinished,
)

_SQLITE_REFUSALS = (8, 10, 13)
"""Codes of SQLite: a read-only file, an error of the disk, a full disk."""
Values = dict[str, float]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def _is_of_disk(error: BaseException | None) -> bool:
    """Whether the disk refused a file of ours, or the database file of a library."""
    while error is not None:
        if isinstance(error, FileWriteError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_REFUSALS:
            return True
        error = error.__cause__ or error.__context__ or getattr(error, "orig", None)
    return False


class Tracker(ABC):
    """A callback for one tool.

    What cannot be opened is an error before training begins. Later the run and its own log continue whatever happens: a
    disk that is full is told, and tried again with the next values; anything else that fails (a server that is gone)
    is told, and the tracker is switched off.
    """

    def __init__(self) -> None:
        self._points = Points()
        self._saving = Saving(_warn)
        self._is_open = self._is_off = False

    @final
    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if self._is_off or (world.is_initialized() and world.rank() != 0):
            return
        if not self._is_open:
            self.open()
            self._is_open = True
        try:
            self._take(event)
        except Exception as error:  # of whatever library
            self._is_off = True
            _warn(f"tracker {type(self).__name__} is switched off, the run goes on: {type(error).__name__}: {error}")

    def _take(self, event: Event) -> None:
        values = self._points.of(event)
        if isinstance(event, RunStarted):
            self.describe(event)
        elif isinstance(event, RunResumed):
            self.resume(event.step)
        elif isinstance(event, RunEnded):
            self._end(event.outcome)
        elif values:
            self.write(self._points.step, values)

    def _end(self, outcome: str) -> None:
        self._is_open = False
        self.end(outcome)

    @final
    def save(self, write: Callable[[], object]) -> bool:
        """Write to disk; whether it took that. If not, the next write is tried as planned."""
        return self._saving.attempt(f"write of {type(self).__name__}", write, is_refusal=_is_of_disk)

    @abstractmethod
    def open(self) -> None:
        """Prepare to write; what is wrong raises :class:`~ringlet.errors.UsageError`."""

    @abstractmethod
    def describe(self, event: RunStarted) -> None:
        """A run begins: what it is."""

    @abstractmethod
    def resume(self, step: int) -> None:
        """The run resumes after ``step`` updates; what was written of later ones did not happen."""

    @abstractmethod
    def write(self, step: int, values: Values) -> None:
        """Values at a step."""

    @abstractmethod
    def end(self, outcome: str) -> None:
        """The run has ended: write what is left and let go of files. Should more follow, it is opened again."""

    @final
    def close(self) -> None:
        """Write what is left, for programs that use a :class:`~ringlet.Trainer` without a run directory."""
        if self._is_open and not self._is_off:
            self._end("finished")


@final
class Points:
    """Turns events into names and values at a step, the same for all trackers; keeps the step, which some do not tell.

    ====================  ======================================================================================
    ``step/NAME``         loss and metrics of one batch
    ``train/NAME``        … of an epoch, on training data
    ``val/NAME``          … on validation data
    ``test/NAME``         … on test data, before and after training
    ``learning_rate``     of every step
    ``samples_per_second``  of every epoch, training alone
    ``epoch``             how many are finished
    ``time/PHASE``        seconds of an epoch, mean over ranks (:data:`ringlet.timeline.PHASES`)
    ``staleness/mean``    … and ``staleness/max``: of an epoch's gradients, where workers do not wait for each other
    ====================  ======================================================================================
    """

    def __init__(self) -> None:
        self.step = 0

    def of(self, event: Event) -> Values:
        """The values of an event at :attr:`step`; empty for events without any. Values that are not finite are kept."""
        match event:
            case RunResumed():
                self.step = event.step
            case StepFinished():
                self.step = event.step
                return {**_named("step", event.figures), "learning_rate": event.learning_rate}
            case EpochFinished():
                self.step = event.step
                return _of_epoch(event)
            case Evaluated():
                return _named("test", event.figures)
            case PhasesMeasured():
                return _of_phases(event)
            case StalenessMeasured():
                return {"staleness/mean": event.mean, "staleness/max": float(event.max)}
        return {}


def finite(values: Values) -> Values:
    """Without NaN and infinity, for tools that cannot keep them."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _named(kind: str, metrics: Mapping[str, float]) -> Values:
    return {f"{kind}/{name}": float(value) for name, value in metrics.items()}


def _of_epoch(event: EpochFinished) -> Values:
    validated = {name[4:]: value for name, value in event.figures.items() if name.startswith("val_")}
    trained = {name: value for name, value in event.figures.items() if not name.startswith("val_")}
    values = {**_named("train", trained), **_named("val", validated)}
    return {**values, "samples_per_second": event.samples_per_second, "epoch": float(event.epoch)}


def _of_phases(event: PhasesMeasured) -> Values:
    num_ranks = max(len(event.seconds), 1)
    sums = [sum(own[place] for own in event.seconds) for place in range(len(event.phases))]
    return {f"time/{phase}": total / num_ranks for phase, total in zip(event.phases, sums, strict=True)}
