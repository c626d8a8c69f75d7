"""Losses of classes: cross-entropies, with smoothed labels, and focal losses.

Probabilities are clipped to ``[1e-7, 1 - 1e-7]`` before a logarithm is taken, with gradient zero where clipped; the
forms that join softmax or sigmoid need no clipping.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, final

import numpy as np

from ringlet.component import option
from ringlet.kernels.reference.losses import (
    PROBABILITY_MARGIN,
    ValueAndGradient,
    clipped,
    log_softmax,
    picked,
    put,
    sigmoid,
    terms,
)
from ringlet.losses.base import Array, Loss, PointwiseLoss, Targets

_SMOOTHING = "share of every target that is spread over all classes"
_LEAST = 1e-12
"""Bases of powers are at least this: a derivative may have a negative exponent."""


@final
class CategoricalCrossEntropy(PointwiseLoss):
    """``-log p[t]`` of the right class; with smoothed labels ``-sum_c q_c log p_c``, ``q = (1 - s) onehot(t) + s / K``.

    Szegedy et al., *Rethinking the Inception architecture for computer vision*, 2016 (arXiv 1512.00567).
    """

    name: ClassVar[str] = "categorical_cross_entropy"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cross_entropy": {}}
    joins: ClassVar[tuple[str, ...]] = ("softmax",)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "segmentation")
    label_smoothing: float = option(0.0, _SMOOTHING, ge=0, lt=1)

    @property
    def targets(self) -> Targets:
        """Classes."""
        return "classes"

    def kernel(self, *, logits: bool) -> str | None:
        """Without smoothing."""
        return None if self.label_smoothing else _categorical_kernel(logits)

    def soft_form(self) -> Loss:
        """With the same smoothing."""
        return SoftCrossEntropy(label_smoothing=self.label_smoothing)

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:
        """Of logits the gradient is ``softmax(x) - q``, of probabilities ``-q / p``."""
        share = self.label_smoothing
        if not share:
            return terms(_categorical_kernel(logits), prediction, target)
        wanted = np.full_like(prediction, share / len(prediction))
        put(wanted, target, picked(wanted, target) + (1 - share))
        if logits:
            logarithms = log_softmax(prediction)
            return -(wanted * logarithms).sum(axis=0), np.exp(logarithms) - wanted
        inside = clipped(prediction)
        gradient = np.where(inside == prediction, -wanted / inside, 0)
        return -(wanted * np.log(inside)).sum(axis=0), gradient

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """The same."""
        num_classes, share = prediction.shape[1], self.label_smoothing
        logarithms = _log_probabilities(ops, prediction, logits=logits)
        wanted = ops.one_hot(target, num_classes, axis=1, dtype=prediction.dtype) * (1 - share) + share / num_classes
        return -ops.sum(wanted * logarithms, axis=1)


@final
class SoftCrossEntropy(Loss):
    """``-sum_c q_c log p_c`` of shares ``q`` of classes, such as mixed samples have: the same mixture of the
    cross-entropies of whole classes, smoothed and weighted as those are.
    """

    name: ClassVar[str] = "soft_cross_entropy"
    is_listed: ClassVar[bool] = False
    joins: ClassVar[tuple[str, ...]] = ("softmax",)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "segmentation")
    label_smoothing: float = option(0.0, _SMOOTHING, ge=0, lt=1)

    def kernel(self, *, logits: bool) -> str | None:
        """Without smoothing."""
        return None if self.label_smoothing else _soft_kernel(logits)

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:
        """A weight of a class multiplies its share."""
        shares = target if weight is None else target * weight
        wanted = self._smoothed(shares, shares.sum(axis=0), len(prediction))
        values, gradient = terms(_soft_kernel(logits), prediction, wanted)
        count = max(1, prod(values.shape[:-1]))
        return values.sum(axis=tuple(range(values.ndim - 1)), dtype=np.float64) / count, gradient / count

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:
        """The same."""
        shares = target if weight is None else target * weight
        wanted = self._smoothed(shares, ops.sum(shares, axis=1, keepdims=True), prediction.shape[1])
        values = -ops.sum(wanted * _log_probabilities(ops, prediction, logits=logits), axis=1)
        axes = tuple(range(1, len(values.shape)))
        return ops.sum(values, axis=axes) / prod(values.shape[1:]) if axes else values

    def _smoothed(self, shares: Any, total: Any, num_classes: int) -> Any:
        """Shares, weighted or not, a part of whose ``total`` is spread evenly over all classes."""
        smoothing = self.label_smoothing
        return shares * (1 - smoothing) + total * (smoothing / num_classes) if smoothing else shares


@final
class BinaryCrossEntropy(PointwiseLoss):
    """``-t log p - (1 - t) log(1 - p)`` of every output; with smoothed labels ``t (1 - s) + s / 2`` for ``t``."""

    name: ClassVar[str] = "binary_cross_entropy"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"bce": {}}
    joins: ClassVar[tuple[str, ...]] = ("sigmoid",)
    label_smoothing: float = option(0.0, _SMOOTHING, ge=0, lt=1)

    def kernel(self, *, logits: bool) -> str | None:
        """Without smoothing."""
        return None if self.label_smoothing else _binary_kernel(logits)

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:
        """As the kernel's."""
        return terms(_binary_kernel(logits), prediction, self._smoothed(target))

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """The same."""
        return binary_entropies(ops, prediction, self._smoothed(target), logits=logits)

    def _smoothed(self, target: Any) -> Any:
        share = self.label_smoothing
        return target * (1 - share) + share / 2 if share else target


@final
class Focal(PointwiseLoss):
    """``-(1 - p[t])^gamma log p[t]``: a cross-entropy in which what is right already counts less.

    Lin et al., *Focal loss for dense object detection*, 2017 (arXiv 1708.02002). Outputs that do not exclude each
    other (several labels, one mask) get ``binary_focal``.
    """

    name: ClassVar[str] = "focal"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"categorical_focal": {}}
    joins: ClassVar[tuple[str, ...]] = ("softmax",)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "segmentation")
    gamma: float = option(2.0, "exponent of the share that is wrong; 0: the plain cross-entropy", ge=0)

    @property
    def targets(self) -> Targets:
        """Classes."""
        return "classes"

    def for_task(self, task: str, num_outputs: int) -> Loss:
        """Itself, or its form for outputs that are independent."""
        if task == "multilabel" or (task in self.tasks and num_outputs == 1):
            return BinaryFocal(gamma=self.gamma)
        return super().for_task(task, num_outputs)

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:
        """With ``m = 1 - p``: ``dL / dlog p = -m^gamma + gamma p m^(gamma - 1) log p``."""
        inside = None if logits else clipped(picked(prediction, target))
        logarithms = log_softmax(prediction) if inside is None else np.log(inside)
        chosen = picked(logarithms, target) if inside is None else logarithms
        wrong = np.maximum(-np.expm1(chosen), _LEAST)
        factor = wrong**self.gamma
        slope = -factor + self.gamma * np.exp(chosen) * wrong ** (self.gamma - 1) * chosen
        if inside is None:
            gradient = -np.exp(logarithms) * slope
            put(gradient, target, picked(gradient, target) + slope)
        else:
            gradient = np.zeros_like(prediction)
            put(gradient, target, np.where(inside == picked(prediction, target), slope / inside, 0))
        return -factor * chosen, gradient

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """The same."""
        wanted = ops.one_hot(target, prediction.shape[1], axis=1, dtype=prediction.dtype)
        chosen = ops.sum(wanted * _log_probabilities(ops, prediction, logits=logits), axis=1)
        return -(ops.maximum(-ops.expm1(chosen), _LEAST) ** self.gamma) * chosen


@final
class BinaryFocal(PointwiseLoss):
    """The focal loss of every output by itself: ``(1 - q)^gamma`` times the binary cross-entropy, ``q = p`` where the
    target is 1 and ``1 - p`` where it is 0.

    ``alpha`` weighs targets of 1, and ``1 - alpha`` those of 0; see ``focal`` for the paper.
    """

    name: ClassVar[str] = "binary_focal"
    joins: ClassVar[tuple[str, ...]] = ("sigmoid",)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "segmentation")
    gamma: float = option(2.0, "exponent of the share that is wrong; 0: the plain cross-entropy", ge=0)
    alpha: float | None = option(None, "weight of targets of 1 (those of 0: the rest of 1); default: none", ge=0, le=1)

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:
        """With ``m = 1 - q``: ``m^gamma dBCE - gamma m^(gamma - 1) dq BCE``."""
        entropy, entropy_slope = terms(_binary_kernel(logits), prediction, target)
        probability = sigmoid(prediction) if logits else clipped(prediction)
        wrong = probability + target - 2 * probability * target
        slope = (2 * target - 1) * (probability * (1 - probability) if logits else 1)
        if not logits:
            slope = np.where(probability == prediction, slope, 0)
        slope = np.where(wrong > _LEAST, slope, 0)
        wrong = np.maximum(wrong, _LEAST)
        gradient = wrong**self.gamma * entropy_slope - self.gamma * wrong ** (self.gamma - 1) * slope * entropy
        factor = self._factor(target)
        return factor * wrong**self.gamma * entropy, factor * gradient

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """The same."""
        entropy = binary_entropies(ops, prediction, target, logits=logits)
        probability = ops.sigmoid(prediction) if logits else _clip(ops, prediction)
        wrong = ops.maximum(probability + target - 2 * probability * target, _LEAST)
        return self._factor(target) * wrong**self.gamma * entropy

    def _factor(self, target: Any) -> Any:
        return 1.0 if self.alpha is None else self.alpha * target + (1 - self.alpha) * (1 - target)


def binary_entropies(ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
    """``-t log p - (1 - t) log(1 - p)`` of every element."""
    if logits:
        return ops.softplus(prediction) - prediction * target
    inside = _clip(ops, prediction)
    return -target * ops.log(inside) - (1 - target) * ops.log1p(-inside)


def _log_probabilities(ops: Any, prediction: Any, *, logits: bool) -> Any:
    return ops.log_softmax(prediction, axis=1) if logits else ops.log(_clip(ops, prediction))


def _clip(ops: Any, probabilities: Any) -> Any:
    return ops.clip(probabilities, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


def _categorical_kernel(logits: bool) -> str:
    return "softmax_cross_entropy" if logits else "categorical_cross_entropy"


def _soft_kernel(logits: bool) -> str:
    return "softmax_soft_cross_entropy" if logits else "soft_cross_entropy"


def _binary_kernel(logits: bool) -> str:
    return "sigmoid_binary_cross_entropy" if logits else "binary_cross_entropy"
