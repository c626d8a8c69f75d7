"""The cells of a study and the order in which they run, as pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

Scaling = Literal["strong", "weak"]
DIMENSIONS = ("workers", "engine", "strategy", "batch", "distribution")
"""Along which cells are compared; networks are not compared with each other."""


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    model: str
    """``NAME`` or ``NAME@DATASET``."""
    engine: str
    """``native``, ``torch``, ``keras`` or ``keras:BACKEND``."""
    strategy: str
    batch: int
    """Samples of a step over all workers (strong scaling) or of each worker (weak scaling)."""
    workers: int
    distribution: bool = True
    """Whether each worker trains on its share of the data; else every worker trains on all of them."""

    @property
    def name(self) -> str:
        """A file name that no other cell has."""
        words = [self.model, self.engine, self.strategy, f"b{self.batch}", f"w{self.workers}"]
        words += [] if self.distribution else ["all"]
        plain = "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", word).strip("._")[-40:] for word in words)
        digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:6]
        return f"{plain}-{digest}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def with_(self, dimension: str, value: Any) -> Cell:
        """The cell that differs in one dimension."""
        return replace(self, **{dimension: value})


@dataclass(frozen=True)
class Place:
    """One run of the study: a cell and which repeat of it, counted from 1."""

    cell: Cell
    repeat: int


def build_cells(
    models: Sequence[tuple[str, Sequence[int]]],
    engines: Sequence[str],
    strategies: Sequence[str],
    workers: Sequence[int],
    distributions: Sequence[bool],
) -> list[Cell]:
    """All cells; ``models`` are names with their batches. Values that were given twice count once.

    One worker has all data in any case, so it gets one cell, which is the baseline of both ways.
    """
    cells = []
    for model, batches in models:
        for engine, strategy, batch, count, shared in product(engines, strategies, batches, workers, distributions):
            cells.append(Cell(model, engine, strategy, batch, count, shared or count == 1))
    return list(dict.fromkeys(cells))


def run_order(cells: Sequence[Cell], repeats: int) -> list[Place]:
    """Repeats take turns: every cell once, then every cell again, each round starting further on.

    So a busy minute of the machine meets different cells, and no cell is always first.
    """
    order = []
    for repeat in range(repeats):
        shift = repeat * max(1, len(cells) // repeats) % max(1, len(cells))
        order += [Place(cell, repeat + 1) for cell in (*cells[shift:], *cells[:shift])]
    return order


def global_batch(cell: Cell, scaling: Scaling) -> int:
    """Samples of a step over all workers."""
    return cell.batch if scaling == "strong" else cell.batch * cell.workers
