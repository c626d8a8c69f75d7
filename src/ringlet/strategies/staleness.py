"""How old parameters were when their gradients arrived: counted in updates that others had made meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ringlet.comm.contract import Communicator

NUM_BINS = 64
"""Of the histogram; the last one also counts all that is older."""


@dataclass(frozen=True)
class Staleness:
    """Of the gradients of all ranks."""

    mean: float
    max: int
    histogram: tuple[int, ...]
    """How many gradients were 0, 1, 2 … updates old."""


@final
class StalenessMeter:
    """Counts the gradients of one rank."""

    def __init__(self) -> None:
        self._counts = np.zeros(NUM_BINS, np.int64)
        self._sum = self._max = 0

    def add(self, staleness: int) -> None:
        """One more gradient."""
        self._counts[min(staleness, NUM_BINS - 1)] += 1
        self._sum += staleness
        self._max = max(self._max, staleness)

    def take(self, comm: Communicator) -> Staleness | None:
        """What all ranks have counted since the last call; None without gradients. Every rank must call."""
        rows = comm.allgather(np.array([[self._sum, self._max, *self._counts]], np.int64))
        self._counts.fill(0)
        self._sum = self._max = 0
        counts = rows[:, 2:].sum(axis=0)
        total = int(counts.sum())
        if total == 0:
            return None
        last = int(counts.nonzero()[0][-1])
        return Staleness(float(rows[:, 0].sum() / total), int(rows[:, 1].max()), tuple(counts[: last + 1].tolist()))
