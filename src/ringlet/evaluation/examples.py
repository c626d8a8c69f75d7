"""The samples with the largest scores, found while they pass by; of equal scores those that come first in the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

LARGEST_SCORE = 1e30
"""Stands for scores that are not finite: they are worse than all others."""


@dataclass(frozen=True)
class Found:
    """A sample among the worst so far."""

    score: float
    index: int
    details: dict[str, Any]
    """Plain values and arrays."""


@final
class Worst:
    """Up to ``limit`` samples with the largest scores."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.found: list[Found] = []

    def offer(self, indices: NDArray[np.int64], scores: NDArray[Any], details: Callable[[int], dict[str, Any]]) -> None:
        """Take the worst of some samples; ``details(place)`` is asked for those that are kept."""
        finite = np.nan_to_num(scores.astype(np.float64), nan=LARGEST_SCORE, posinf=LARGEST_SCORE)
        for place in np.lexsort((indices, -finite))[: self._limit].tolist():
            score, index = float(finite[place]), int(indices[place])
            if len(self.found) == self._limit and (-score, index) > (-self.found[-1].score, self.found[-1].index):
                return
            self.add([Found(score, index, details(place))])

    def add(self, found: Iterable[Found]) -> None:
        """Take what another has found."""
        merged = sorted([*self.found, *found], key=lambda one: (-one.score, one.index))
        self.found = merged[: self._limit]
