"""How far a run has come, and what it gave.

``Progress`` is all that changes besides parameters, running statistics, optimizer and schedule.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from ringlet.checkpoint.contents import parse_number, parse_row
from ringlet.errors import CheckpointError
from ringlet.training.best_weights import BestEpoch
from ringlet.training.events import TrainingFinished
from ringlet.training.observers import Stop


@dataclass
class Progress:
    """Counts and metrics up to the last step; together with the seed they say what comes next."""

    num_epochs: int = 0
    """Finished epochs, validation included."""
    step_in_epoch: int = 0
    """Steps done of the epoch after those."""
    num_steps: int = 0
    num_samples: int = 0
    num_skipped: int = 0
    """Steps without an update, because something was not finite."""
    totals: list[float] = field(default_factory=list)
    """Sums and counts of the running epoch's metrics; empty before its first step."""
    epochs: list[dict[str, float]] = field(default_factory=list)
    """The metrics of every finished epoch."""
    stopped: str | None = None
    """Why training was to end after the last epoch, if it was."""

    @property
    def running_epoch(self) -> int:
        """The number, from 1, of the epoch that is under way; between two of them, of the one that is finished."""
        return self.num_epochs + (1 if self.step_in_epoch or not self.num_epochs else 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, without the history of finished epochs; totals that are not finite become text."""
        values = asdict(replace(self, epochs=[]))
        del values["epochs"]
        values["totals"] = [value if math.isfinite(value) else str(value) for value in self.totals]
        return values

    def load(self, values: Mapping[str, Any], epochs: Sequence[Mapping[str, float]]) -> None:
        """Take over what :meth:`to_dict` gave, and the history; anything else is a damaged checkpoint."""
        try:
            for name in ("num_epochs", "step_in_epoch", "num_steps", "num_samples", "num_skipped"):
                number = values[name]
                if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                    raise ValueError(f"{name} = {number!r}")
                setattr(self, name, number)
            stopped = values["stopped"]
            self.stopped = None if stopped is None else str(stopped)
            self.totals = [parse_number(value) for value in values["totals"]]
            self.epochs = [parse_row(row) for row in epochs]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint does not say how far its run had come: {error}") from None


@dataclass
class History:
    """One row of metrics per epoch, and why training ended early, if it did."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: str | None = None
    interrupted: bool = False
    """Whether it ended in the middle of an epoch, by a signal."""
    best: BestEpoch | None = None
    """The epoch whose weights are in use, where early_stopping or model_checkpoint has chosen one."""

    @classmethod
    def of(cls, progress: Progress, stop: Stop | None, first: int = 0) -> Self:
        """The history of a run after training, from the epoch at place ``first`` on."""
        interrupted = stop is not None and stop.interrupted
        return cls(progress.epochs[first:], None if stop is None else stop.reason, interrupted)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, name: str) -> list[float]:
        """A column, such as ``history["val_loss"]``; KeyError if no epoch has it."""
        column = [row[name] for row in self.epochs if name in row]
        if not column:
            raise KeyError(f"no metric '{name}' in the history; there are: {', '.join(self.names())}")
        return column

    def names(self) -> list[str]:
        """All metrics in the order of their first appearance."""
        return list(dict.fromkeys(name for row in self.epochs for name in row))

    def append(self, metrics: Mapping[str, float]) -> None:
        """Add the row of one epoch."""
        self.epochs.append({name: float(value) for name, value in metrics.items()})

    def to_json(self) -> str:
        """Columns by name, one entry per epoch (null where an epoch has none)."""
        columns = {name: [row.get(name) for row in self.epochs] for name in self.names()}
        return json.dumps(columns, indent=2) + "\n"


@dataclass
class RunResult:
    """What a whole run gave; metrics are shares and losses, not per cent."""

    model: str
    dataset: str
    num_parameters: int
    run_dir: str | None = None
    model_file: str | None = None
    num_epochs: int = 0
    num_steps: int = 0
    num_samples: int = 0
    seconds: float = 0.0
    samples_per_second: float = 0.0
    stopped: str | None = None
    best: dict[str, Any] | None = None
    """Epoch, step, metric and value of the weights in use, where early_stopping or model_checkpoint has chosen them."""
    test_before: dict[str, float] | None = None
    test: dict[str, float] | None = None
    epochs: list[dict[str, float]] = field(default_factory=list)
    num_workers: int = 1
    profile: list[dict[str, float]] | None = None
    """Seconds of each phase, one entry per worker."""

    def take(self, finished: TrainingFinished, history: History) -> None:
        """Take over what training gave."""
        self.num_epochs, self.num_steps = finished.num_epochs, finished.num_steps
        self.num_samples, self.seconds = finished.num_samples, finished.seconds
        self.samples_per_second = finished.samples_per_second
        self.stopped, self.epochs = history.stopped, history.epochs
        self.best = None if history.best is None else asdict(history.best)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
