"""The figures of one run, read from its event log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringlet.errors import DataError

GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "metrics"),
    "exchange": ("reduce", "exchange", "update"),
    "wait": ("wait",),
    "data": ("data",),
    "other": ("other",),
}
"""Phases of a run (:data:`ringlet.timeline.PHASES`) as a study shows them; validation is left out."""


@dataclass(frozen=True)
class Epoch:
    """One epoch; ``seconds`` is training alone, ``shares`` are means over workers and add up to one."""

    seconds: float
    validation_seconds: float
    num_samples: int
    figures: Mapping[str, float]
    shares: Mapping[str, float]


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
        return {**asdict(self), "epochs": [asdict(epoch) for epoch in self.epochs]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Measurement:
        """What :meth:`to_dict` wrote."""
        return cls(**{**stored, "epochs": tuple(Epoch(**epoch) for epoch in stored["epochs"])})


def read_measurement(events: Path) -> Measurement:
    """The figures of a finished run; a log that is incomplete or has no epoch is a :class:`DataError`."""
    found = _read_events(events)
    finished = found.get("epoch_finished", [])
    if "training_finished" not in found or not finished or "run_started" not in found:
        raise DataError(f"'{events}' is not the log of a finished run: expected run_started, epochs, training_finished")
    about = found["run_started"][0]
    phases = {event["epoch"]: shares(event["phases"], event["seconds"]) for event in found.get("phases_measured", [])}
    test = [event["figures"] for event in found.get("evaluated", []) if event["moment"] == "after"]
    return Measurement(
        epochs=tuple(_epoch(event, phases) for event in finished),
        num_parameters=about["num_parameters"],
        global_batch_size=about["global_batch_size"],
        num_train_samples=about["num_train_samples"],
        device=about["device"],
        kernels=about["kernels"],
        test=_numbers(test[-1]) if test else {},
        stopped=next((event["reason"] for event in found.get("training_stopped", [])), ""),
    )


def shares(phases: list[str], seconds: list[list[float]]) -> dict[str, float]:
    """The share of each group of phases in the time of all workers; nothing where no time was measured."""
    totals = {name: sum(rank[place] for rank in seconds) for place, name in enumerate(phases)}
    grouped = {group: sum(totals.get(name, 0.0) for name in names) for group, names in GROUPS.items()}
    whole = sum(grouped.values())
    return {group: value / whole for group, value in grouped.items()} if whole > 0 else {}


def _epoch(event: Mapping[str, Any], phases: Mapping[int, dict[str, float]]) -> Epoch:
    times = event["seconds"], event["validation_seconds"]
    return Epoch(*times, event["num_samples"], _numbers(event["figures"]), phases.get(event["epoch"], {}))


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """Figures without those that are not finite, which the log has as text."""
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}


def _read_events(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if '"event": "step_finished"' not in line[:40]:
                    event = json.loads(line)
                    found.setdefault(event["event"], []).append(event)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"'{path}' is damaged: expected one JSON object with an event per line") from None
    return found
