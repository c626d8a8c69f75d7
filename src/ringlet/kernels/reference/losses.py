"""Losses: each sample's value, and the gradient of its prediction, in numerically stable forms.

Every loss takes the real samples only, ``prediction (C, …, n)``, and returns its values per pixel, element or sample,
together with the gradient of their sum; :func:`loss` adds them up and divides by their number in a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import UnknownNameError
from ringlet.kernels.definitions import DICE_SMOOTH, Floats, Loss

PROBABILITY_MARGIN = 1e-7
"""Probabilities are clipped to ``[margin, 1 - margin]`` before a logarithm is taken."""

ValueAndGradient = tuple[NDArray[Any], NDArray[Any]]


def loss(
    kind: Loss,
    prediction: Floats,
    target: NDArray[Any],
    dprediction: Floats | None,
    *,
    n: int,
    scale: float,
) -> float:
    """The sum over the ``n`` samples of each sample's loss; ``dprediction`` gets ``scale`` times its gradient.

    ``prediction (C, …, L)``. For the two categorical kinds ``target`` is int32 ``(…, L)``, a class per pixel;
    otherwise it has prediction's shape and dtype. A sample's loss is a mean over its pixels (categorical) or
    elements (others):
    ``softmax_cross_entropy`` takes logits: ``-log softmax(x)[t]``; ``categorical_cross_entropy`` probabilities;
    ``softmax_soft_cross_entropy`` (logits) and ``soft_cross_entropy`` are the same of shares of classes, ``-sum(t log
    p)``, as means over pixels too;
    ``sigmoid_binary_cross_entropy`` logits: ``max(x, 0) - x t + log(1 + exp(-|x|))``; ``binary_cross_entropy``
    probabilities, clipped to ``[1e-7, 1 - 1e-7]`` (categorical also; gradient zero where clipped); ``dice`` is
    ``1 - (2 sum(p t) + s) / (sum p + sum t + s)`` over the sample, ``s = DICE_SMOOTH``; ``bce_dice`` and, of
    logits, ``sigmoid_bce_dice`` are the sum of a binary cross-entropy and dice; ``mse``; ``mae`` (gradient 0 at 0).
    """
    if kind not in _LOSSES:
        raise UnknownNameError("loss", kind, get_args(Loss))
    function, divisor = _LOSSES[kind]
    samples = prediction[..., :n]
    values, gradient = function(samples, target[..., :n])
    count = divisor(samples)
    if dprediction is not None:
        dprediction[..., :n] = gradient * (scale / count)
        dprediction[..., n:] = 0
    return float(values.sum(dtype=np.float64)) / count


def terms(kind: str, prediction: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """The values of a loss of this kind before they are added up, and the gradient of their sum."""
    return _LOSSES[kind][0](prediction, target)


def loss_by(
    function: Callable[[NDArray[Any]], ValueAndGradient],
    prediction: Floats,
    dprediction: Floats | None,
    *,
    n: int,
    scale: float,
) -> float:
    """As :func:`loss`, of a function that gives each sample's loss ``(n,)`` and the gradient of their sum.

    It runs where no compiled kernel knows the loss, its options or its weights.
    """
    values, gradient = function(prediction[..., :n])
    if dprediction is not None:
        dprediction[..., :n] = gradient * scale
        dprediction[..., n:] = 0
    return float(values.sum(dtype=np.float64))


def _softmax_cross_entropy(logits: Floats, classes: NDArray[Any]) -> ValueAndGradient:
    """``log sum exp(x) - x[t]``; gradient ``softmax(x) - onehot(t)``."""
    shifted = logits - logits.max(axis=0)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=0)
    gradient = exponentials / sums
    put(gradient, classes, picked(gradient, classes) - 1)
    return np.log(sums) - picked(shifted, classes), gradient


def _categorical_cross_entropy(probabilities: Floats, classes: NDArray[Any]) -> ValueAndGradient:
    """``-log p[t]``; gradient ``-1 / p[t]`` at ``t`` only."""
    chosen = picked(probabilities, classes)
    inside = clipped(chosen)
    gradient = np.zeros_like(probabilities)
    put(gradient, classes, np.where(chosen == inside, -1 / inside, 0))
    return -np.log(inside), gradient


def _softmax_soft_cross_entropy(logits: Floats, shares: NDArray[Any]) -> ValueAndGradient:
    """``sum(t) log sum exp(x) - sum(t x)``; gradient ``sum(t) softmax(x) - t``."""
    shifted = logits - logits.max(axis=0)
    exponentials = np.exp(shifted)
    sums, total = exponentials.sum(axis=0), shares.sum(axis=0)
    values = total * np.log(sums) - (shares * shifted).sum(axis=0)
    return values, exponentials * (total / sums) - shares


def _soft_cross_entropy(probabilities: Floats, shares: NDArray[Any]) -> ValueAndGradient:
    """``-sum(t log p)``; gradient ``-t / p``."""
    inside = clipped(probabilities)
    gradient = np.where(probabilities == inside, -shares / inside, 0)
    return -(shares * np.log(inside)).sum(axis=0), gradient


def _sigmoid_binary_cross_entropy(logits: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """``max(x, 0) - x t + log(1 + exp(-|x|))``; gradient ``sigmoid(x) - t``."""
    values = np.maximum(logits, 0) - logits * target + np.log1p(np.exp(-np.abs(logits)))
    return values, sigmoid(logits) - target


def _binary_cross_entropy(probabilities: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """``-t log p - (1 - t) log(1 - p)``; gradient ``(p - t) / (p (1 - p))``."""
    inside = clipped(probabilities)
    values = -target * np.log(inside) - (1 - target) * np.log1p(-inside)
    gradient = (inside - target) / (inside * (1 - inside))
    return values, np.where(probabilities == inside, gradient, 0)


def _dice(probabilities: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """``1 - a / b`` per sample, ``a = 2 sum(p t) + s``, ``b = sum p + sum t + s``; gradient ``(a - 2 t b) / b²``."""
    axes = tuple(range(probabilities.ndim - 1))
    numerator = 2 * (probabilities * target).sum(axis=axes) + DICE_SMOOTH
    denominator = probabilities.sum(axis=axes) + target.sum(axis=axes) + DICE_SMOOTH
    return 1 - numerator / denominator, (numerator - 2 * target * denominator) / denominator**2


def _bce_dice(probabilities: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """Binary cross-entropy, a mean over a sample's elements, plus dice."""
    return _with_dice(_binary_cross_entropy(probabilities, target), _dice(probabilities, target))


def _sigmoid_bce_dice(logits: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """The same with ``p = sigmoid(x)``: dice's gradient passes through ``p (1 - p)``."""
    probabilities = sigmoid(logits)
    values, gradient = _dice(probabilities, target)
    dice = values, gradient * probabilities * (1 - probabilities)
    return _with_dice(_sigmoid_binary_cross_entropy(logits, target), dice)


def _with_dice(entropy: ValueAndGradient, dice: ValueAndGradient) -> ValueAndGradient:
    count = _num_elements(entropy[0])
    axes = tuple(range(entropy[0].ndim - 1))
    return entropy[0].sum(axis=axes) / count + dice[0], entropy[1] / count + dice[1]


def _mse(prediction: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """``(p - t)²``; gradient ``2 (p - t)``."""
    difference = prediction - target
    return difference**2, 2 * difference


def _mae(prediction: Floats, target: NDArray[Any]) -> ValueAndGradient:
    """``|p - t|``; gradient ``sign(p - t)``."""
    difference = prediction - target
    return np.abs(difference), np.sign(difference)


def sigmoid(logits: Floats) -> NDArray[Any]:
    """``1 / (1 + exp(-x))`` without overflow."""
    exponential = np.exp(-np.abs(logits))
    result: NDArray[Any] = np.where(logits >= 0, 1, exponential) / (1 + exponential)
    return result


def log_softmax(logits: Floats) -> NDArray[Any]:
    """``x - log sum exp(x)`` over the channels."""
    shifted = logits - logits.max(axis=0)
    result: NDArray[Any] = shifted - np.log(np.exp(shifted).sum(axis=0))
    return result


def clipped(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Probabilities whose logarithms, and those of their complements, are finite."""
    inside: NDArray[Any] = np.clip(probabilities, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    return inside


def picked(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """``values[classes[…, j], …, j]``: each pixel's value of its class."""
    chosen: NDArray[Any] = np.take_along_axis(values, classes[None], axis=0)[0]
    return chosen


def put(values: NDArray[Any], classes: NDArray[Any], new: NDArray[Any]) -> None:
    """``values[classes[…, j], …, j] = new[…, j]``."""
    np.put_along_axis(values, classes[None], new[None], axis=0)


def _num_pixels(prediction: Floats) -> int:
    return max(1, prediction[0, ..., 0].size)


def _num_elements(prediction: Floats) -> int:
    return prediction[..., 0].size


_LOSSES: dict[str, tuple[Callable[[Floats, NDArray[Any]], ValueAndGradient], Callable[[Floats], int]]] = {
    "softmax_cross_entropy": (_softmax_cross_entropy, _num_pixels),
    "categorical_cross_entropy": (_categorical_cross_entropy, _num_pixels),
    "softmax_soft_cross_entropy": (_softmax_soft_cross_entropy, _num_pixels),
    "soft_cross_entropy": (_soft_cross_entropy, _num_pixels),
    "sigmoid_binary_cross_entropy": (_sigmoid_binary_cross_entropy, _num_elements),
    "binary_cross_entropy": (_binary_cross_entropy, _num_elements),
    "dice": (_dice, lambda _: 1),
    "bce_dice": (_bce_dice, lambda _: 1),
    "sigmoid_bce_dice": (_sigmoid_bce_dice, lambda _: 1),
    "mse": (_mse, _num_elements),
    "mae": (_mae, _num_elements),
}
