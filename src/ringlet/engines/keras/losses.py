"""The losses of :mod:`ringlet.kernels.reference.losses` in Keras' operations: the same stable forms and divisors.

Other losses, options and weights are a loss's own expression (:mod:`ringlet.losses`).
Each takes a prediction ``(n, C, …)`` and targets with the samples outermost (classes ``(n, …)`` or values like the
prediction) and gives the sum over samples of each sample's loss.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import keras as typed_keras

from ringlet.engines.heads import Head
from ringlet.kernels.contract import DICE_SMOOTH
from ringlet.kernels.reference.losses import PROBABILITY_MARGIN

ops: Any = typed_keras.ops
"""They come without types."""

Kernel = Callable[[Any, Any], Any]


def loss_function(head: Head) -> Callable[[Any, Any, Any | None], Any]:
    """The sum of a loss over samples, of prediction, targets and weights or None."""
    kernel = None if head.kernel is None else _KERNELS[head.kernel]

    def total(prediction: Any, targets: Any, weights: Any | None) -> Any:
        if kernel is not None and weights is None:
            return kernel(prediction, targets)
        return ops.sum(head.loss.tensors(ops, prediction, targets, weights, logits=head.skips_last_node))

    return total


def _softmax_cross_entropy(logits: Any, classes: Any) -> Any:
    chosen = _chosen(ops.log_softmax(logits, axis=1), classes)
    return -ops.sum(chosen) / prod(classes.shape[1:])


def _categorical_cross_entropy(probabilities: Any, classes: Any) -> Any:
    chosen = _clip(_chosen(probabilities, classes))
    return -ops.sum(ops.log(chosen)) / prod(classes.shape[1:])


def _softmax_soft_cross_entropy(logits: Any, shares: Any) -> Any:
    return -ops.sum(shares * ops.log_softmax(logits, axis=1)) / prod(logits.shape[2:])


def _soft_cross_entropy(probabilities: Any, shares: Any) -> Any:
    return -ops.sum(shares * ops.log(_clip(probabilities))) / prod(probabilities.shape[2:])


def _sigmoid_binary_cross_entropy(logits: Any, target: Any) -> Any:
    return ops.sum(ops.softplus(logits) - logits * target) / prod(logits.shape[1:])


def _binary_cross_entropy(probabilities: Any, target: Any) -> Any:
    clipped = _clip(probabilities)
    values = -target * ops.log(clipped) - (1 - target) * ops.log1p(-clipped)
    return ops.sum(values) / prod(probabilities.shape[1:])


def _dice(probabilities: Any, target: Any) -> Any:
    axes = tuple(range(1, len(probabilities.shape)))
    numerator = 2 * ops.sum(probabilities * target, axes) + DICE_SMOOTH
    denominator = ops.sum(probabilities, axes) + ops.sum(target, axes) + DICE_SMOOTH
    return ops.sum(1 - numerator / denominator)


def _bce_dice(probabilities: Any, target: Any) -> Any:
    return _binary_cross_entropy(probabilities, target) + _dice(probabilities, target)


def _sigmoid_bce_dice(logits: Any, target: Any) -> Any:
    return _sigmoid_binary_cross_entropy(logits, target) + _dice(ops.sigmoid(logits), target)


def _mse(prediction: Any, target: Any) -> Any:
    return ops.sum(ops.square(prediction - target)) / prod(prediction.shape[1:])


def _mae(prediction: Any, target: Any) -> Any:
    return ops.sum(ops.absolute(prediction - target)) / prod(prediction.shape[1:])


def _chosen(values: Any, classes: Any) -> Any:
    """Each pixel's value of its class: a sum over products with zeros and a one, which every backend differentiates."""
    return ops.sum(values * ops.one_hot(classes, values.shape[1], axis=1, dtype=values.dtype), axis=1)


def _clip(probabilities: Any) -> Any:
    return ops.clip(probabilities, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


_KERNELS: dict[str, Kernel] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "categorical_cross_entropy": _categorical_cross_entropy,
    "softmax_soft_cross_entropy": _softmax_soft_cross_entropy,
    "soft_cross_entropy": _soft_cross_entropy,
    "sigmoid_binary_cross_entropy": _sigmoid_binary_cross_entropy,
    "binary_cross_entropy": _binary_cross_entropy,
    "dice": _dice,
    "bce_dice": _bce_dice,
    "sigmoid_bce_dice": _sigmoid_bce_dice,
    "mse": _mse,
    "mae": _mae,
}
