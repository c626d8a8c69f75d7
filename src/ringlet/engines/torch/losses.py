"""The losses of :mod:`ringlet.kernels.reference.losses` in PyTorch: the same stable forms, margins and divisors.

PyTorch's own functions compute what they have; all else is a loss's own expression (:mod:`ringlet.losses`).
Each takes a prediction ``(n, C, …)`` and targets with the samples outermost (classes ``(n, …)`` or values like the
prediction) and gives the sum over samples of each sample's loss, added up in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from ringlet.engines.heads import Head
from ringlet.engines.torch.ops import TorchOps
from ringlet.kernels.contract import DICE_SMOOTH
from ringlet.kernels.reference.losses import PROBABILITY_MARGIN

Kernel = Callable[[Tensor, Tensor], Tensor]


def loss_function(head: Head) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """The sum of a loss over samples, of prediction, targets and weights or None."""
    kernel = None if head.kernel is None else _KERNELS[head.kernel]

    def total(prediction: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        if kernel is not None and weights is None:
            return kernel(prediction, targets)
        return _total(head.loss.tensors(TorchOps, prediction, targets, weights, logits=head.skips_last_node))

    return total


def _total(values: Tensor) -> Tensor:
    return values.sum(dtype=torch.float64)


def _softmax_cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    values = functional.cross_entropy(logits, classes, reduction="none")
    return _total(values) / prod(classes.shape[1:])


def _categorical_cross_entropy(probabilities: Tensor, classes: Tensor) -> Tensor:
    chosen = _clip(probabilities.gather(1, classes[:, None]))
    return -_total(chosen.log()) / prod(classes.shape[1:])


def _softmax_soft_cross_entropy(logits: Tensor, shares: Tensor) -> Tensor:
    values = functional.cross_entropy(logits, shares, reduction="none")
    return _total(values) / prod(logits.shape[2:])


def _soft_cross_entropy(probabilities: Tensor, shares: Tensor) -> Tensor:
    return -_total(shares * _clip(probabilities).log()) / prod(probabilities.shape[2:])


def _sigmoid_binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    values = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return _total(values) / prod(logits.shape[1:])


def _binary_cross_entropy(probabilities: Tensor, target: Tensor) -> Tensor:
    clipped = _clip(probabilities)
    values = -target * clipped.log() - (1 - target) * torch.log1p(-clipped)
    return _total(values) / prod(probabilities.shape[1:])


def _dice(probabilities: Tensor, target: Tensor) -> Tensor:
    axes = tuple(range(1, probabilities.ndim))
    numerator = 2 * (probabilities * target).sum(axes) + DICE_SMOOTH
    denominator = probabilities.sum(axes) + target.sum(axes) + DICE_SMOOTH
    return _total(1 - numerator / denominator)


def _bce_dice(probabilities: Tensor, target: Tensor) -> Tensor:
    return _binary_cross_entropy(probabilities, target) + _dice(probabilities, target)


def _sigmoid_bce_dice(logits: Tensor, target: Tensor) -> Tensor:
    return _sigmoid_binary_cross_entropy(logits, target) + _dice(logits.sigmoid(), target)


def _mse(prediction: Tensor, target: Tensor) -> Tensor:
    return _total((prediction - target).square()) / prod(prediction.shape[1:])


def _mae(prediction: Tensor, target: Tensor) -> Tensor:
    return _total((prediction - target).abs()) / prod(prediction.shape[1:])


def _clip(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


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
