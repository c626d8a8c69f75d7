"""What happens in a run, as plain records, and the writer of ``events.ndjson``.

Every figure of a run appears in exactly one kind of event. A callback receives these objects; the log holds one JSON
object per line: ``{"event": "epoch_finished", "time": …, …}``. Epochs and steps count from 1, as people do.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO, get_args

from ringlet.forks import Owner

Figures = Mapping[str, float]


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
    """A run goes on from the checkpoint after ``step`` updates and ``epoch`` finished epochs."""

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
    figures: Figures
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
    """A run goes on within an epoch, after ``step_in_epoch`` of its steps and ``num_done`` of its samples."""

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
    figures: Figures
    running: Figures


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

    ``is_best`` says that model_checkpoint wants this model kept; ``messages`` are remarks of the schedule.
    """

    epoch: int
    num_epochs: int
    step: int
    figures: Figures
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
class TrainingFinished:
    """All steps are done. ``seconds`` includes validation; ``num_samples`` counts trained samples only."""

    num_epochs: int
    num_steps: int
    num_samples: int
    seconds: float
    samples_per_second: float


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
    | RunEnded
)


_NAMES = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Event)}
_LOGGED_FIELDS = {kind: [field.name for field in fields(kind) if field.name != "running"] for kind in get_args(Event)}


class EventLog:
    """Appends events to an NDJSON file; each line is flushed, so that a reader sees it at once."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, *, cut_at: int | None = None) -> None:
        """With ``cut_at`` only the first so many bytes of an older log stay: what follows did not happen."""
        self.path = path
        self._clock = clock
        self._owner = Owner()
        self._file: TextIO = path.open("a", encoding="utf-8", newline="\n")
        if cut_at is not None and cut_at < path.stat().st_size:
            self._file.truncate(cut_at)

    def __call__(self, event: Event) -> None:
        """Write one event; the running means are left out, as they follow from the steps."""
        if not self._owner.is_here:  # what a copy of the rank does on its way out is no event of the run
            return
        record = {"event": event_name(event), "time": round(self._clock(), 6)}
        record.update((name, getattr(event, name)) for name in _LOGGED_FIELDS[type(event)])
        self._file.write(_line(record) + "\n")
        self._file.flush()

    def position(self) -> int:
        """How many bytes the log has."""
        return self.path.stat().st_size

    def close(self) -> None:
        """Close the file; further events are an error."""
        self._file.close()


def event_name(event: Event) -> str:
    """The name in the log: ``EpochFinished`` -> ``epoch_finished``."""
    return _NAMES[type(event)]


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _line(record: dict[str, Any]) -> str:
    try:
        return _encode(record)
    except ValueError:
        return _encode(_finite(record))


def _finite(value: Any) -> Any:
    """JSON has no NaN: such figures become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
