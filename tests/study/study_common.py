"""Studies made up of given measurements, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringlet.study.design import StudyDesign
from ringlet.study.grid import Cell, Place
from ringlet.study.measurement import Epoch, Measurement
from ringlet.study.options import StudyOptions
from ringlet.study.summary import Summary, summarise

SHARES = {"compute": 0.8, "exchange": 0.1, "wait": 0.05, "data": 0.03, "other": 0.02}


def cell(workers: int = 1, **changes: Any) -> Cell:
    values = {"model": "net", "engine": "native", "strategy": "sync", "batch": 64, "workers": workers}
    return Cell(**{**values, **changes})


def measurement(seconds: Sequence[float], samples: int = 1000, accuracies: Sequence[float] = ()) -> Measurement:
    reached = accuracies or [0.5 + 0.1 * index for index in range(len(seconds))]
    metrics = [
        {"loss": 1 - value, "accuracy": value, "val_accuracy": value, "val_loss": 1 - value} for value in reached
    ]
    epochs = tuple(Epoch(time, 0.1, samples, found, SHARES) for time, found in zip(seconds, metrics, strict=True))
    return Measurement(epochs, 1234, 64, samples, "cpu", "compiled", {})


def design(cells: Sequence[Cell], **options: Any) -> StudyDesign:
    chosen = StudyOptions(**{"repeats": 3, "epochs": 3, **options})
    return StudyDesign(chosen, tuple(cells), {"net 64": 5}, {}, {"1": 1, "2": 1})


def summary(runs: Mapping[Cell, Sequence[Measurement | str]], **options: Any) -> Summary:
    """Runs of every cell, one per repeat; a text is the reason of a failure."""
    records: dict[Place, dict[str, Any]] = {}
    for own, found in runs.items():
        for index, run in enumerate(found):
            status = (
                {"status": "failed", "reason": run}
                if isinstance(run, str)
                else {"status": "finished", "measurement": run.to_dict()}
            )
            records[Place(own, index + 1)] = status
    return summarise(design(list(runs), **options), records)
