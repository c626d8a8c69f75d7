"""Times and metrics of one run, read from its event log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ringlet.errors import DataError
from ringlet.training.events import number, whole

GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "metrics"),
    "exchange": ("reduce", "exchange", "update"),
    "wait": ("wait",),
    "data": ("data",),
    "other": ("other",),
}
"""Phases of a run (:data:`ringlet.timeline.PHASES`) as a study shows them; validation is left out."""

_IN_FILES = {"metrics": "figures"}


@dataclass(frozen=True)
class Epoch:
    """One epoch; ``seconds`` is training alone, ``shares`` are means over workers and add up to one."""

    seconds: float
    validation_seconds: float
    num_samples: int
    metrics: Mapping[str, float]
    shares: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; files call the metrics ``figures``, as the event log does."""
        return {_IN_FILES.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Epoch:
        """What :meth:`to_dict` wrote."""
        return cls(**{entry.name: stored[_IN_FILES.get(entry.name, entry.name)] for entry in fields(cls)})


@dataclass(frozen=True)
class Measurement:
    """All epochs of a run, and what the run said about itself."""

    epochs: tuple[Epoch, ...]
    num_parameters: int
    global_batch_size: int
    num_train_samples: int
    device: str
    kernels: str
    test: Mapping[str, float]
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "epochs": [epoch.to_dict() for epoch in self.epochs]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Measurement:
        """What :meth:`to_dict` wrote."""
        return cls(**{**stored, "epochs": tuple(Epoch.from_dict(epoch) for epoch in stored["epochs"])})


def read_measurement(events: Path) -> Measurement:
    """Times and metrics of a finished run; an incomplete or damaged log, or one without epochs, raises."""
    found = _read_events(events)
    finished = found.get("epoch_finished", [])
    if "training_finished" not in found or not finished or "run_started" not in found:
        raise DataError(f"'{events}' is not the log of a finished run: expected run_started, epochs, training_finished")
    try:
        return _measurement(found, finished)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"'{events}' is damaged: {_problem(error)}") from None


def _measurement(found: Mapping[str, list[dict[str, Any]]], finished: list[dict[str, Any]]) -> Measurement:
    about = found["run_started"][0]
    phases = {
        _whole(event, "epoch"): shares(event["phases"], event["seconds"]) for event in found.get("phases_measured", [])
    }
    test = [event["figures"] for event in found.get("evaluated", []) if event["moment"] == "after"]
    return Measurement(
        epochs=tuple(_epoch(event, phases) for event in finished),
        num_parameters=_whole(about, "num_parameters"),
        global_batch_size=_whole(about, "global_batch_size"),
        num_train_samples=_whole(about, "num_train_samples"),
        device=_text(about, "device"),
        kernels=_text(about, "kernels"),
        test=_numbers(test[-1]) if test else {},
        stopped=next((_text(event, "reason") for event in found.get("training_stopped", [])), ""),
    )


def shares(phases: list[str], seconds: list[list[float]]) -> dict[str, float]:
    """The share of each group of phases in the time of all workers; nothing where no time was measured."""
    totals = {name: sum(_duration(rank[place]) for rank in seconds) for place, name in enumerate(phases)}
    grouped = {group: sum(totals.get(name, 0.0) for name in names) for group, names in GROUPS.items()}
    everything = sum(grouped.values())
    return {group: value / everything for group, value in grouped.items()} if everything > 0 else {}


def _epoch(event: Mapping[str, Any], phases: Mapping[int, dict[str, float]]) -> Epoch:
    times = _duration(event["seconds"]), _duration(event["validation_seconds"])
    metrics, epoch = _numbers(event["figures"]), _whole(event, "epoch")
    return Epoch(*times, _whole(event, "num_samples"), metrics, phases.get(epoch, {}))


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics without those that are not finite, which the log has as text."""
    read = {name: number(value) for name, value in metrics.items()}
    return {name: value for name, value in read.items() if value is not None}


def _duration(value: Any) -> float:
    found = number(value)
    if found is None or found < 0:
        raise ValueError(f"a time of {_shown(value)}, expected seconds")
    return found


def _whole(event: Mapping[str, Any], key: str) -> int:
    found = whole(event[key])
    if found is None:
        raise ValueError(f"{key} is {_shown(event[key])}, expected a number of things")
    return found


def _text(event: Mapping[str, Any], key: str) -> str:
    if not isinstance(event[key], str):
        raise ValueError(f"{key} is {_shown(event[key])}, expected a text")
    return str(event[key])


def _shown(value: Any) -> str:
    return json.dumps(value)[:40]


def _problem(error: Exception) -> str:
    return f"an event lacks {error}" if isinstance(error, KeyError) else str(error)


def _read_events(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if '"event": "step_finished"' not in line[:40]:
                    event = json.loads(line)
                    if not isinstance(event["event"], str):
                        raise TypeError(event["event"])
                    found.setdefault(event["event"], []).append(event)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"'{path}' is damaged: expected one JSON object with an event per line") from None
    return found
