"""What happens in a run, as plain records; the writer of ``events.ndjson``, and what its readers may take for a number.

Every metric of a run appears in exactly one kind of event. A callback receives these objects; the log holds one JSON
object per line: ``{"event": "epoch_finished", "time": …, …}``. Epochs and steps count from 1, as people do.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from ringlet.errors import FileWriteError
from ringlet.forks import Owner
from ringlet.io.disk import Appender, Saving, Say, explain

Metrics = Mapping[str, float]
_CHUNK_BYTES = 1 << 16
MAX_NUMBER = 1e100
"""Far above any metric of a run. What readers compute of numbers below these limits (sums over ranks and epochs, rates)
stays finite, as JSON needs it: ten to the two hundredth of them still have a finite sum."""
MAX_COUNT = 1 << 53
"""What a browser's numbers hold exactly."""
MAX_TIME = 1e12
"""Seconds since 1970: thirty thousand years."""


@dataclass(frozen=True)
class RunStarted:
    """The run is assembled and valid; nothing has been computed yet."""

    model: str
    dataset: str
    num_parameters: int
    num_train_samples: int
    num_validation_samples: int
    num_test_samples: int
    num_epochs: int
    global_batch_size: int
    num_workers: int
    num_machines: int
    communicator: str
    num_shards: int
    engine: str
    device: str
    kernels: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class RunResumed:
    """A run resumes from the checkpoint after ``step`` updates and ``epoch`` finished epochs."""

    epoch: int
    step: int
    num_epochs: int
    num_workers: int
    engine: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class RunRestarted:
    """The launcher has started all workers again, for the ``number``-th time, because of ``cause``."""

    number: int
    cause: str


@dataclass(frozen=True)
class Evaluated:
    """The test data were evaluated; ``moment`` is "before", "after" or "only"."""

    moment: str
    figures: Metrics
    num_samples: int
    seconds: float


@dataclass(frozen=True)
class EpochStarted:
    """An epoch begins; ``num_epochs`` is the last epoch of this call."""

    epoch: int
    num_epochs: int
    num_steps: int
    num_samples: int


@dataclass(frozen=True)
class EpochResumed:
    """A run resumes within an epoch, after ``step_in_epoch`` of its steps and ``num_done`` of its samples."""

    epoch: int
    num_epochs: int
    num_steps: int
    num_samples: int
    step_in_epoch: int
    num_done: int


@dataclass(frozen=True)
class StepFinished:
    """One update was applied; ``figures`` are of this batch, ``running`` are means over the epoch so far."""

    epoch: int
    step: int
    step_in_epoch: int
    num_samples: int
    learning_rate: float
    figures: Metrics
    running: Metrics


@dataclass(frozen=True)
class StepSkipped:
    """A step changed nothing, because of ``problem``: something was not finite."""

    epoch: int
    step: int
    problem: str


@dataclass(frozen=True)
class ValidationStarted:
    """The training part of the epoch is over; validation data come next."""

    epoch: int
    num_samples: int


@dataclass(frozen=True)
class StalenessMeasured:
    """How old gradients were in an epoch: updates between taking a copy of the parameters and bringing the gradient.

    ``histogram[s]`` counts gradients of staleness s; the 64th entry also counts older ones.
    """

    epoch: int
    mean: float
    max: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class PhasesMeasured:
    """Where the time of an epoch went: ``seconds[rank][i]`` were spent on ``phases[i]`` (:mod:`ringlet.timeline`)."""

    epoch: int
    phases: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class EpochFinished:
    """An epoch is complete; ``num_samples`` and ``samples_per_second`` count trained samples and training time only.

    ``is_best`` says that it is the best one so far for model_checkpoint or early_stopping; ``messages`` are remarks.
    """

    epoch: int
    num_epochs: int
    step: int
    figures: Metrics
    learning_rate: float
    num_samples: int
    seconds: float
    validation_seconds: float
    samples_per_second: float
    is_best: bool = False
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSaved:
    """A model file was written completely."""

    path: str
    epoch: int
    step: int


@dataclass(frozen=True)
class TrainingStopped:
    """Training ended before its last epoch; ``reason`` is for people."""

    epoch: int
    step: int
    reason: str


@dataclass(frozen=True)
class BestRestored:
    """The weights after ``epoch`` and ``step``, the best by ``metric``, are in use from here on instead of the last."""

    epoch: int
    step: int
    metric: str
    value: float


@dataclass(frozen=True)
class TrainingFinished:
    """All steps are done. ``seconds`` includes validation; ``num_samples`` counts trained samples only.

    ``messages`` are remarks, such as that an earlier epoch was better than the last.
    """

    num_epochs: int
    num_steps: int
    num_samples: int
    seconds: float
    samples_per_second: float
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputLost:
    """What the run prints on ``stream`` ("stdout" or "stderr") is not shown any more; the run continues."""

    stream: str
    reason: str


@dataclass(frozen=True)
class EventsLost:
    """``count`` events that belong here could not be written to this log, because of ``reason``."""

    count: int
    reason: str


@dataclass(frozen=True)
class RunEnded:
    """Nothing follows. ``outcome`` is "finished", "interrupted", "diverged" or "failed"; a killed run has no such end.

    ``reason`` is for people; empty if all epochs were trained.
    """

    outcome: str
    reason: str


Event = (
    RunStarted
    | Evaluated
    | RunResumed
    | RunRestarted
    | EpochStarted
    | EpochResumed
    | StepFinished
    | StepSkipped
    | ValidationStarted
    | StalenessMeasured
    | PhasesMeasured
    | EpochFinished
    | ModelSaved
    | TrainingStopped
    | TrainingFinished
    | BestRestored
    | OutputLost
    | EventsLost
    | RunEnded
)


_NAMES = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Event)}
_LOGGED_FIELDS = {kind: [field.name for field in fields(kind) if field.name != "running"] for kind in get_args(Event)}


class EventLog:
    """Appends events to an NDJSON file; each line is written at once, so that a reader sees it.

    Events that the disk does not take are left out, whole lines only; the log says how many as soon as it can be
    written again.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        cut_at: int | None = None,
        say: Say = warnings.warn,
    ) -> None:
        """With ``cut_at`` an older log keeps only this many bytes: what follows did not happen."""
        self.path = path
        self._clock, self._saving = clock, Saving(say)
        self._owner = Owner()
        self._num_lost, self._reason = 0, ""
        try:
            self._file = Appender(path)
            self._file.cut(_end_of_lines(path, self._file.size if cut_at is None else cut_at))
        except OSError as error:
            raise FileWriteError(f"event log {path} cannot be opened: {explain(error, path)}") from error

    def __call__(self, event: Event) -> None:
        """Write one event; the running means are left out, as they follow from the steps."""
        if not self._owner.is_here:  # what a copy of the rank does on its way out is no event of the run
            return
        line = self._line(event)
        if not self._saving.attempt(f"line of {self.path.name}", lambda: self._append(line)):
            self._num_lost += 1

    def _append(self, line: bytes) -> None:
        try:
            self._tell_of_gap()
            self._file.append(line)
        except FileWriteError as error:
            self._reason = str(error)
            raise

    def _tell_of_gap(self) -> None:
        if self._num_lost:
            self._file.append(self._line(EventsLost(self._num_lost, self._reason)))
            self._num_lost = 0

    def _line(self, event: Event) -> bytes:
        record = {"event": event_name(event), "time": round(self._clock(), 6)}
        record.update((name, getattr(event, name)) for name in _LOGGED_FIELDS[type(event)])
        return f"{_text(record)}\n".encode()

    def position(self) -> int:
        """How many bytes the whole lines of the log have."""
        return self._file.size

    def close(self) -> None:
        """Close the file; further events are an error."""
        try:
            self._tell_of_gap()
        except FileWriteError as error:
            self._saving.say(f"{self._num_lost} events are missing in the log: {error}")
        self._file.close()


def _end_of_lines(path: Path, size: int) -> int:
    """The end of the last whole line within the first ``size`` bytes: a writer that was killed may have left a part."""
    with path.open("rb") as file:
        end = min(size, file.seek(0, os.SEEK_END))
        while end > 0:
            start = max(end - _CHUNK_BYTES, 0)
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


def event_name(event: Event) -> str:
    """The name in the log: ``EpochFinished`` -> ``epoch_finished``."""
    return _NAMES[type(event)]


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _text(record: dict[str, Any]) -> str:
    try:
        return _encode(record)
    except ValueError:
        return _encode(_finite(record))


def _finite(value: Any) -> Any:
    """JSON has no NaN: such numbers become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# -- what readers of a log may use: it is a file, and nothing in it is what it says it is ------------------------------
def number(value: Any) -> float | None:
    """A number of sensible size; None for anything else, such as NaN, which logs hold as text."""
    if type(value) is int and abs(value) <= MAX_NUMBER:
        return float(value)
    if type(value) is float and math.isfinite(value) and abs(value) <= MAX_NUMBER:
        return value
    return None


def whole(value: Any) -> int | None:
    """A number of things; None for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < MAX_COUNT else None


def moment(value: Any) -> float | None:
    """A time in seconds since 1970; None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found <= MAX_TIME else None
