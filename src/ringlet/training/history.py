"""History: the figures of every finished epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class History:
    """One row of figures per epoch, and why training ended early, if it did."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: str | None = None
    interrupted: bool = False
    """Whether it ended in the middle of an epoch, by a signal."""

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, name: str) -> list[float]:
        """A column, such as ``history["val_loss"]``; KeyError if no epoch has it."""
        column = [row[name] for row in self.epochs if name in row]
        if not column:
            raise KeyError(f"no figure '{name}' in the history; there are: {', '.join(self.names())}")
        return column

    def names(self) -> list[str]:
        """All figures in the order of their first appearance."""
        return list(dict.fromkeys(name for row in self.epochs for name in row))

    def append(self, figures: Mapping[str, float]) -> None:
        """Add the row of one epoch."""
        self.epochs.append({name: float(value) for name, value in figures.items()})

    def to_json(self) -> str:
        """Columns by name, one entry per epoch (null where an epoch has none)."""
        columns = {name: [row.get(name) for row in self.epochs] for name in self.names()}
        return json.dumps(columns, indent=2) + "\n"
