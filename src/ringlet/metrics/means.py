"""Metrics that are means of one value per sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, final

from ringlet.errors import ConfigError
from ringlet.metrics import formulas
from ringlet.metrics.base import Array, Measure, Metric

Formula = Callable[[Array, Array], tuple[float, int]]
_CLASSES = ("classification", "segmentation")
_DECISIONS = ("classification", "multilabel", "segmentation")


def mean_of(name: str, formula: Formula) -> Measure:
    """The mean of what a formula gives as a sum over samples."""
    return Measure(name, 1, lambda outputs, targets: formula(outputs, targets)[:1], lambda sums, count: sums[0] / count)


@final
class Accuracy(Metric):
    """The share of samples (of masks: pixels; of several labels: labels) that are right."""

    name: ClassVar[str] = "accuracy"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "categorical_accuracy": {}, "binary_accuracy": {}, "pixel_accuracy": {}, "label_accuracy": {},
    }  # fmt: skip
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = _DECISIONS

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """By the largest output; labels by 0.5 each."""
        return mean_of(self.name, formulas.label_accuracy if task == "multilabel" else formulas.accuracy)


@final
class ExactMatch(Metric):
    """The share of samples all of whose labels or pixels are right."""

    name: ClassVar[str] = "exact_match"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"subset_accuracy": {}}
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = _DECISIONS

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """By the largest output; labels by 0.5 each."""
        return mean_of(self.name, formulas.exact_match)


@final
class Top5Accuracy(Metric):
    """The share of samples or pixels whose class is among the five largest outputs."""

    name: ClassVar[str] = "top5_accuracy"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"top5": {}}
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = _CLASSES

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """Of equal outputs the first counts."""
        return mean_of(self.name, formulas.top5_accuracy)


@final
class Hinge(Metric):
    """``max(0, 1 + largest wrong output - right output)``."""

    name: ClassVar[str] = "hinge"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"categorical_hinge": {}}
    tasks: ClassVar[tuple[str, ...]] = _CLASSES

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """A mean over pixels, then samples."""
        return mean_of(self.name, formulas.hinge)


@final
class SquaredError(Metric):
    """The mean squared error; classes become ones and zeros."""

    name: ClassVar[str] = "mse"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "categorical_mse": {}, "regression_mse": {}, "mean_squared_error": {},
    }  # fmt: skip

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """A mean over outputs, then samples."""
        return mean_of(self.name, formulas.mse)


@final
class AbsoluteError(Metric):
    """The mean absolute error; classes become ones and zeros."""

    name: ClassVar[str] = "mae"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "categorical_mae": {}, "regression_mae": {}, "mean_absolute_error": {},
    }  # fmt: skip

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """A mean over outputs, then samples."""
        return mean_of(self.name, formulas.mae)


@final
class Dice(Metric):
    """``(2 sum(p t) + 1) / (sum p + sum t + 1)`` of each sample: 1 minus the dice loss."""

    name: ClassVar[str] = "dice"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dice_coef": {}, "dice_coefficient": {}}
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = _DECISIONS

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """Over all elements of a sample."""
        return mean_of(self.name, formulas.dice)


@final
class IoU(Metric):
    """Intersection over union of each sample's predicted and wanted pixels, a mean over the classes that occur."""

    name: ClassVar[str] = "iou"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"jaccard": {}, "mean_iou": {}}
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = _CLASSES

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """One channel is decided at 0.5."""
        return mean_of(self.name, formulas.iou)


@final
class NoMetrics(Metric):
    """Nothing beside the loss."""

    name: ClassVar[str] = "none"

    def measure(self, task: str, num_outputs: int) -> NoReturn:  # noqa: ARG002
        """It stands alone, for no metric."""
        raise ConfigError("metrics: 'none' means that there are none: leave it or the others out")
