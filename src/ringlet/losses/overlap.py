"""Losses of overlap, for masks: dice, dice with binary cross-entropy, and Tversky's weighted form.

Each sample is one region: sums run over all of its elements, classes included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from ringlet.component import option
from ringlet.kernels.contract import DICE_SMOOTH
from ringlet.kernels.reference.losses import ValueAndGradient, sigmoid
from ringlet.losses.base import Array, Loss
from ringlet.losses.classes import BinaryCrossEntropy

_TASKS = ("classification", "multilabel", "segmentation")
_SMOOTH = "added to numerator and denominator, so that two empty masks agree"


def overlap(
    prediction: Array,
    target: Array,
    weight: Array | None,
    false_positives: float,
    false_negatives: float,
    smooth: float,
) -> ValueAndGradient:
    """``1 - a / b``, ``a = sum(w p t) + s``, ``b = a + fp sum(w p (1 - t)) + fn sum(w (1 - p) t)``, for each sample.

    The gradient of ``a`` is ``w t``, that of ``b`` ``w (t + fp (1 - t) - fn t)``.
    """
    axes = tuple(range(prediction.ndim - 1))
    factor: Any = 1.0 if weight is None else weight
    shared = (factor * prediction * target).sum(axis=axes) + smooth
    too_much = (factor * prediction * (1 - target)).sum(axis=axes)
    missed = (factor * (1 - prediction) * target).sum(axis=axes)
    whole = shared + false_positives * too_much + false_negatives * missed
    slope = target + false_positives * (1 - target) - false_negatives * target
    return 1 - shared / whole, factor * (shared * slope - target * whole) / whole**2


def overlap_tensors(
    ops: Any,
    prediction: Any,
    target: Any,
    weight: Any | None,
    false_positives: float,
    false_negatives: float,
    smooth: float,
) -> Any:
    """The same in a framework's tensors."""
    axes = tuple(range(1, len(prediction.shape)))
    factor = 1.0 if weight is None else weight
    shared = ops.sum(factor * prediction * target, axis=axes) + smooth
    too_much = ops.sum(factor * prediction * (1 - target), axis=axes)
    missed = ops.sum(factor * (1 - prediction) * target, axis=axes)
    return 1 - shared / (shared + false_positives * too_much + false_negatives * missed)


@final
class Dice(Loss):
    """``1 - (2 sum(p t) + s) / (sum p + sum t + s)`` over a sample (Milletari et al. 2016, arXiv 1606.04797)."""

    name: ClassVar[str] = "dice"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dice_loss": {}, "dice_coef_loss": {}}
    tasks: ClassVar[tuple[str, ...]] = _TASKS
    smooth: float = option(DICE_SMOOTH, _SMOOTH, gt=0)

    def kernel(self, *, logits: bool) -> str | None:  # noqa: ARG002
        """With the usual smoothing."""
        return "dice" if self.smooth == DICE_SMOOTH else None

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """Overlap with both errors at one half."""
        return overlap(prediction, target, weight, 0.5, 0.5, self.smooth / 2)

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:  # noqa: ARG002
        """Overlap with both errors at one half."""
        return overlap_tensors(ops, prediction, target, weight, 0.5, 0.5, self.smooth / 2)


@final
class Tversky(Loss):
    """Dice with a weight for each kind of error (Salehi et al. 2017, arXiv 1706.05721): 0.5 and 0.5 are dice."""

    name: ClassVar[str] = "tversky"
    tasks: ClassVar[tuple[str, ...]] = _TASKS
    alpha: float = option(0.3, "weight of false positives", ge=0)
    beta: float = option(0.7, "weight of false negatives: more than alpha finds more of rare objects", ge=0)
    smooth: float = option(DICE_SMOOTH, _SMOOTH, gt=0)

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """Overlap."""
        return overlap(prediction, target, weight, self.alpha, self.beta, self.smooth)

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:  # noqa: ARG002
        """Overlap."""
        return overlap_tensors(ops, prediction, target, weight, self.alpha, self.beta, self.smooth)


@final
class BceDice(Loss):
    """The sum of binary cross-entropy (a mean over a sample's elements) and dice."""

    name: ClassVar[str] = "bce_dice"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"bce_dice_loss": {}}
    joins: ClassVar[tuple[str, ...]] = ("sigmoid",)
    tasks: ClassVar[tuple[str, ...]] = _TASKS
    smooth: float = option(DICE_SMOOTH, _SMOOTH, gt=0)

    def kernel(self, *, logits: bool) -> str | None:
        """With the usual smoothing."""
        if self.smooth != DICE_SMOOTH:
            return None
        return "sigmoid_bce_dice" if logits else "bce_dice"

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:
        """Of logits, dice's gradient passes through ``p (1 - p)``."""
        entropy, slope = BinaryCrossEntropy().gradient(prediction, target, weight, logits=logits)
        probabilities = sigmoid(prediction) if logits else prediction
        dice, dice_slope = Dice(smooth=self.smooth).gradient(probabilities, target, weight, logits=False)
        if logits:
            dice_slope = dice_slope * probabilities * (1 - probabilities)
        return entropy + dice, slope + dice_slope

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:
        """The same."""
        entropy = BinaryCrossEntropy().tensors(ops, prediction, target, weight, logits=logits)
        probabilities = ops.sigmoid(prediction) if logits else prediction
        return entropy + Dice(smooth=self.smooth).tensors(ops, probabilities, target, weight, logits=False)
