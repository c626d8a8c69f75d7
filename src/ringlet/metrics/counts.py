"""Metrics of counts: precision, recall and F1, with the formulas and averages of scikit-learn.

Of each class three numbers add up: how often it was predicted and right, how often it was predicted, how often it was
the target. Classes that are neither predicted nor wanted are left out of a mean, labels are not; a share of nothing is
zero. A single output has one class, that of targets of 1. Of masks every pixel counts as a sample.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import option
from ringlet.metrics.base import Array, Measure, Metric
from ringlet.metrics.formulas import class_indices, dense_targets

Counts = NDArray[np.float64]


class _Counted(Metric):
    """A share of counts of each class, averaged."""

    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "segmentation")
    average: Literal["macro", "micro", "weighted"] = option(
        "macro", "macro: a mean over classes, micro: of all counts together, weighted: a mean by the number of targets"
    )
    threshold: float = option(0.5, "from which output on a label, or a single output, counts as predicted", gt=0, lt=1)

    @abstractmethod
    def share(self, right: Counts, predicted: Counts, wanted: Counts) -> Counts:
        """Of each class."""

    def measure(self, task: str, num_outputs: int) -> Measure:
        """Three counts of each class."""
        by_label = task == "multilabel" or num_outputs == 1

        def sums(outputs: Array, targets: Array) -> list[float]:
            if by_label:
                counted = count_labels(outputs >= self.threshold, dense_targets(outputs, targets) >= 0.5)
            else:
                counted = count_classes(np.argmax(outputs, axis=1), class_indices(outputs, targets), num_outputs)
            return [float(value) for value in counted.ravel()]

        def final(totals: Sequence[float], _: int) -> float:
            return self._averaged(np.array(totals).reshape(3, num_outputs), all_classes=by_label)

        return Measure(self.name, 3 * num_outputs, sums, final)

    def _averaged(self, counts: Counts, *, all_classes: bool) -> float:
        if self.average == "micro":
            counts = counts.sum(axis=1, keepdims=True)
        right, predicted, wanted = counts
        shares = self.share(right, predicted, wanted)
        if self.average == "weighted":
            return float((shares * wanted).sum() / max(wanted.sum(), 1))
        occurs = np.ones(len(shares), bool) if all_classes else predicted + wanted > 0
        return float(shares[occurs].mean())


def count_labels(predicted: Array, wanted: Array) -> Counts:
    """``(3, K)`` of decisions ``(n, K, …)``: right, predicted, wanted."""
    axes = (0, *range(2, predicted.ndim))
    return np.array([(predicted & wanted).sum(axis=axes), predicted.sum(axis=axes), wanted.sum(axis=axes)], np.float64)


def count_classes(predicted: Array, wanted: Array, num_classes: int) -> Counts:
    """``(3, K)`` of classes of any shape: right, predicted, wanted."""
    found = [predicted[predicted == wanted], predicted.ravel(), wanted.ravel()]
    return np.array([np.bincount(values, minlength=num_classes) for values in found], np.float64)


def _divided(numerator: Counts, denominator: Counts) -> Counts:
    result: Any = numerator / np.maximum(denominator, 1)
    return np.asarray(result)


@final
class Precision(_Counted):
    """Of what was predicted, the share that is right."""

    name: ClassVar[str] = "precision"

    def share(self, right: Counts, predicted: Counts, wanted: Counts) -> Counts:  # noqa: ARG002
        """``tp / (tp + fp)``."""
        return _divided(right, predicted)


@final
class Recall(_Counted):
    """Of what should be found, the share that was."""

    name: ClassVar[str] = "recall"

    def share(self, right: Counts, predicted: Counts, wanted: Counts) -> Counts:  # noqa: ARG002
        """``tp / (tp + fn)``."""
        return _divided(right, wanted)


@final
class F1(_Counted):
    """The harmonic mean of precision and recall."""

    name: ClassVar[str] = "f1"

    def share(self, right: Counts, predicted: Counts, wanted: Counts) -> Counts:
        """``2 tp / (2 tp + fp + fn)``."""
        return _divided(2 * right, predicted + wanted)
