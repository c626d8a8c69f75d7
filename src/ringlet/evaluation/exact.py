"""Sums of floating numbers without any rounding, so that every order and every split over ranks gives the same bits.

A float64 is ``m * 2^e`` with a whole ``m`` of 53 bits. For every exponent that occurs, the halves of ``m`` are added up
in int64, which is exact for 2^36 numbers; the total is a whole number of Python's, rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

_BITS, _LOW_BITS = 53, 27


@final
class ExactSums:
    """The sums of ``num_columns`` columns of numbers."""

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._halves: dict[int, NDArray[np.int64]] = {}
        """By exponent: ``(2, num_columns)``, the high and the low halves."""
        self._num_bad = np.zeros(num_columns, np.int64)
        """Numbers that are not finite: their sum is not a number."""

    def add(self, values: NDArray[Any]) -> None:
        """Add the rows of ``values (n, num_columns)``."""
        good = np.isfinite(values)
        self._num_bad += len(values) - np.count_nonzero(good, axis=0)
        mantissas, exponents = np.frexp(np.where(good, values, 0.0).astype(np.float64))
        wholes = np.ldexp(mantissas, _BITS).astype(np.int64)
        halves = wholes >> _LOW_BITS, wholes & ((1 << _LOW_BITS) - 1)
        for exponent in np.unique(exponents).tolist():
            is_here = exponents == exponent
            sums = np.stack([np.where(is_here, half, 0).sum(axis=0) for half in halves])
            self._merge_one(exponent, sums)

    def merge(self, other: dict[str, Any]) -> None:
        """Add what another has summed, by its :attr:`state`."""
        self._num_bad += other["bad"]
        for exponent, sums in zip(other["exponents"].tolist(), other["halves"], strict=True):
            self._merge_one(exponent, sums)

    @property
    def state(self) -> dict[str, Any]:
        """Arrays that hold all of it, for other ranks."""
        exponents = sorted(self._halves)
        halves = [self._halves[exponent] for exponent in exponents]
        return {
            "bad": self._num_bad,
            "exponents": np.array(exponents, np.int64),
            "halves": np.array(halves, np.int64).reshape(len(halves), 2, self._num_columns),
        }

    def totals(self) -> list[Fraction | None]:
        """The exact sum of every column; None where a number was not finite."""
        sums = [Fraction(0)] * self._num_columns
        for exponent, (high, low) in self._halves.items():
            unit = Fraction(2) ** (exponent - _BITS)
            for column, (upper, lower) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
                sums[column] += ((upper << _LOW_BITS) + lower) * unit
        return [None if bad else total for total, bad in zip(sums, self._num_bad.tolist(), strict=True)]

    def _merge_one(self, exponent: int, sums: NDArray[np.int64]) -> None:
        known = self._halves.get(exponent)
        self._halves[exponent] = sums.copy() if known is None else known + sums
