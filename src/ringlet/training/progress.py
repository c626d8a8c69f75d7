"""How far a run has come: all that changes besides parameters, running statistics, optimizer and schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ringlet.checkpoint.contents import parse_number, parse_row
from ringlet.errors import CheckpointError


@dataclass
class Progress:
    """Counts and figures up to the last step; together with the seed they say what comes next."""

    num_epochs: int = 0
    """Finished epochs, validation included."""
    step_in_epoch: int = 0
    """Steps done of the epoch after those."""
    num_steps: int = 0
    num_samples: int = 0
    num_skipped: int = 0
    """Steps without an update, because something was not finite."""
    totals: list[float] = field(default_factory=list)
    """Sums and counts of the running epoch's figures; empty before its first step."""
    epochs: list[dict[str, float]] = field(default_factory=list)
    """The figures of every finished epoch."""
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
