"""Medians, ranges and ratios of few noisy values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Estimate:
    """A value with the range in which repeats lay; ``low == high == median`` if there was one value alone."""

    median: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Half the range, as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0

    def to_dict(self) -> dict[str, float | int]:
        """Plain values, for JSON."""
        return {"median": self.median, "low": self.low, "high": self.high, "count": self.count}


def estimate(values: Sequence[float]) -> Estimate:
    """Median and range of at least one value."""
    return Estimate(median(values), min(values), max(values), len(values))


def ratio(numerators: Mapping[int, Sequence[float]], denominators: Mapping[int, Sequence[float]]) -> Estimate | None:
    """How many times the denominator the numerator is; both are values by repeat.

    Runs of one repeat were made close to each other, so medians are divided repeat by repeat: what slowed the machine
    for a while cancels out. With one repeat alone the range is that of its own values, each against each. None if no
    repeat has both.
    """
    common = sorted(numerators.keys() & denominators.keys())
    if not common:
        return None
    paired = [median(numerators[repeat]) / median(denominators[repeat]) for repeat in common]
    if len(common) > 1:
        return estimate(paired)
    above, below = numerators[common[0]], denominators[common[0]]
    return Estimate(paired[0], min(above) / max(below), max(above) / min(below), min(len(above), len(below)))
