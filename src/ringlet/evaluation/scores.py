"""The parts of a report: scores of classes, labels and outputs, calibration, examples. Formulas are scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15
"""Of the calibration (Guo et al., 2017)."""
GRID = 1 << 24
"""Confidences are whole multiples of one over this, as which int64 adds them up without rounding."""


@dataclass(frozen=True)
class ClassScores:
    """How one class, or one label of several, was predicted. A ratio of nothing to nothing is 0, as in scikit-learn."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    """Samples (of masks: pixels) that are of this class."""
    num_predicted: int
    num_right: int
    iou: float | None = None
    """Masks: pixels that are and were called so, over those that are or were; None if the class does not occur."""
    dice: float | None = None

    @classmethod
    def of(cls, name: str, num_right: int, num_predicted: int, support: int, *, masks: bool = False) -> ClassScores:
        """The scores of these counts."""
        union = num_predicted + support - num_right
        return cls(
            name,
            _ratio(num_right, num_predicted),
            _ratio(num_right, support),
            _ratio(2 * num_right, num_predicted + support),
            support,
            num_predicted,
            num_right,
            num_right / union if masks and union else None,
            2 * num_right / (num_predicted + support) if masks and union else None,
        )

    @property
    def occurs(self) -> bool:
        """Whether it is the truth or the prediction anywhere."""
        return self.support + self.num_predicted > 0


def averages(classes: Sequence[ClassScores], *, micro: bool = False) -> dict[str, dict[str, float]]:
    """``macro`` (all classes that occur count the same) and ``weighted`` (by support) means, for labels ``micro`` too.

    ``micro`` counts all decisions together; where every sample has one class it would be the accuracy.
    """
    found = [one for one in classes if one.occurs]
    names = ("precision", "recall", "f1", *(("iou", "dice") if any(one.iou is not None for one in found) else ()))
    total = sum(one.support for one in found)
    result: dict[str, dict[str, float]] = {}
    if micro:
        sums = (sum(getattr(one, name) for one in found) for name in ("num_right", "num_predicted", "support"))
        whole = ClassScores.of("micro", *sums)
        result["micro"] = {name: getattr(whole, name) for name in names}
    result["macro"] = {name: _ratio(sum(getattr(one, name) for one in found), len(found)) for name in names}
    result["weighted"] = {name: _ratio(sum(getattr(one, name) * one.support for one in found), total) for name in names}
    return result


@dataclass(frozen=True)
class Bin:
    """Predictions whose confidence is above ``low`` and at most ``high``."""

    low: float
    high: float
    count: int
    confidence: float | None
    """Their mean confidence; None if there are none."""
    accuracy: float | None
    """The share of them that is right (of labels: that is true)."""


@dataclass(frozen=True)
class Calibration:
    """Whether what is predicted with 90 % confidence is right nine times out of ten."""

    bins: tuple[Bin, ...]
    ece: float
    """Expected calibration error: the mean of |accuracy - confidence| over bins, weighted by their counts."""
    mce: float
    """The largest |accuracy - confidence| of a bin."""
    confidence: float
    """The mean over all predictions."""
    accuracy: float

    @classmethod
    def of(cls, counts: NDArray[np.int64], rights: NDArray[np.int64], units: NDArray[np.int64]) -> Calibration:
        """From the numbers of predictions, of right ones, and the sums of confidences in units of 1 / ``GRID``."""
        total = max(int(counts.sum()), 1)
        bins, gaps = [], []
        for place, (count, right, unit) in enumerate(zip(*(a.tolist() for a in (counts, rights, units)), strict=True)):
            confidence, accuracy = (unit / GRID / count, right / count) if count else (None, None)
            bins.append(Bin(place / len(counts), (place + 1) / len(counts), count, confidence, accuracy))
            gaps.append(abs(Fraction(right) - Fraction(unit, GRID)))
        ece = float(sum(gaps, Fraction(0)) / total)
        mce = max((float(gap / one.count) for gap, one in zip(gaps, bins, strict=True) if one.count), default=0.0)
        return cls(tuple(bins), ece, mce, int(units.sum()) / GRID / total, int(rights.sum()) / total)


@dataclass(frozen=True)
class OutputScores:
    """The errors of one output of a regression: prediction minus truth."""

    name: str
    mae: float | None
    """None if a prediction was not a finite number; so for the others."""
    rmse: float | None
    r2: float | None
    """Share of the variance that is explained; of a constant truth 1 if it is met, else 0, as in scikit-learn."""
    bias: float | None
    """The mean error."""
    max_error: float | None

    @classmethod
    def of(cls, name: str, count: int, sums: Sequence[Fraction | None], largest: float) -> OutputScores:
        """From exact sums of ``|e|``, ``e²``, ``e``, ``t`` and ``t²``."""
        known = [total for total in sums if total is not None]
        if len(known) < len(sums) or not count:
            return cls(name, None, None, None, None, None)
        absolute, squared, plain, truth, truth_squared = known
        spread = truth_squared - truth * truth / count
        r2 = float(1 - squared / spread) if spread > 0 else float(squared == 0)
        return cls(name, float(absolute / count), sqrt(squared / count), r2, float(plain / count), largest)


@dataclass(frozen=True)
class Example:
    """A sample that went wrong. Which fields are known depends on the task."""

    index: int
    """Its place in the data."""
    score: float
    """By which examples are ordered, the largest first."""
    file: str = ""
    truth: str = ""
    predicted: str = ""
    confidence: float | None = None
    """Of the prediction."""
    truth_confidence: float | None = None
    """What the network gave for the truth."""
    iou: float | None = None
    error: float | None = None
    """Regression: root of the mean squared error over the sample's outputs."""


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def plain(value: Any) -> Any:
    """A number that JSON takes: those that are not finite become None."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
