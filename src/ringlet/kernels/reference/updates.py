"""Optimizer updates over flat one-dimensional arrays, in place; two helpers for clipping; sums along a tree.

Weight decay is either part of the gradient (``g' = g + λ w``) or decoupled (``w -= lr λ w`` before the update).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.definitions import Floats


def sgd_update(
    parameters: Floats,
    gradients: Floats,
    velocity: Floats | None,
    *,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """``g' = g + weight_decay * w`` (or, decoupled, ``w -= lr * weight_decay * w`` first);
    ``v = momentum * v + g'``; ``w -= lr * v``, with Nesterov ``w -= lr * (g' + momentum * v)``.
    ``velocity`` is None when momentum is 0."""
    gradients = _decay(parameters, gradients, learning_rate, weight_decay, decoupled)
    if velocity is None:
        parameters -= learning_rate * gradients
        return
    velocity *= momentum
    velocity += gradients
    parameters -= learning_rate * (gradients + momentum * velocity if nesterov else velocity)


def rmsprop_update(
    parameters: Floats,
    gradients: Floats,
    square: Floats,
    *,
    learning_rate: float,
    rho: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """``s = rho s + (1 - rho) g²``; ``w -= lr g / (sqrt(s) + epsilon)``."""
    gradients = _decay(parameters, gradients, learning_rate, weight_decay, decoupled)
    _average(square, gradients**2, rho)
    parameters -= learning_rate * gradients / (np.sqrt(square) + epsilon)


def adam_update(
    parameters: Floats,
    gradients: Floats,
    first: Floats,
    second: Floats,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    weight_decay: float,
    decoupled: bool,
    nesterov: bool,
) -> None:
    """``m = b1 m + (1 - b1) g``; ``v = b2 v + (1 - b2) g²``; ``w -= lr m^ / (sqrt(v^) + epsilon)`` where
    ``m^ = m / (1 - b1^step)``, ``v^ = v / (1 - b2^step)`` and ``step`` counts from 1. With ``nesterov`` (Nadam)
    ``m^ = b1 m / (1 - b1^(step+1)) + (1 - b1) g / (1 - b1^step)``."""
    gradients = _decay(parameters, gradients, learning_rate, weight_decay, decoupled)
    _average(first, gradients, beta1)
    _average(second, gradients**2, beta2)
    if nesterov:
        ahead, now = beta1 / (1 - beta1 ** (step + 1)), (1 - beta1) / (1 - beta1**step)
        corrected_first = ahead * first + now * gradients
    else:
        corrected_first = first / (1 - beta1**step)
    corrected_second = second / (1 - beta2**step)
    parameters -= learning_rate * corrected_first / (np.sqrt(corrected_second) + epsilon)


def adadelta_update(
    parameters: Floats,
    gradients: Floats,
    square: Floats,
    delta: Floats,
    *,
    learning_rate: float,
    rho: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """``s = rho s + (1 - rho) g²``; ``u = g sqrt(d + epsilon) / sqrt(s + epsilon)``;
    ``d = rho d + (1 - rho) u²``; ``w -= lr u``."""
    gradients = _decay(parameters, gradients, learning_rate, weight_decay, decoupled)
    _average(square, gradients**2, rho)
    update = gradients * np.sqrt(delta + epsilon) / np.sqrt(square + epsilon)
    _average(delta, update**2, rho)
    parameters -= learning_rate * update


def sum_squares(values: Floats) -> float:
    """``sum(values²)`` in float64, added in a fixed order."""
    flat = values.reshape(-1)
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))


def scale(values: Floats, factor: float) -> None:
    """``values *= factor`` in place."""
    values *= factor


def add_tree(inputs: Sequence[Floats], tree: Sequence[int], out: Floats) -> None:
    """``out`` = the sum of ``inputs`` along a binary tree, all flat and of one length; ``out`` may be an input.

    ``tree`` is in postfix: a number >= 0 pushes that input, -1 adds the two on top, the lower one first. The bits
    depend on the tree alone: ``[0, 1, -1, 2, 3, -1, -1]`` is ``(i0 + i1) + (i2 + i3)``, on every rank.
    """
    if any(array.size != out.size or array.dtype != out.dtype for array in inputs):
        raise ValueError("flat arrays must have the same size and dtype")
    stack: list[Floats] = []
    for item in tree:
        if item >= 0:
            stack.append(inputs[item])
        elif item == -1 and len(stack) > 1:
            right = stack.pop()
            stack[-1] = stack[-1] + right
        else:
            raise ValueError("a tree holds numbers of inputs and -1, which adds two operands that come before it")
    if len(stack) != 1:
        raise ValueError(f"a tree leaves exactly one sum, this one leaves {len(stack)}")
    np.copyto(out, stack[0])


def _average(moment: Floats, value: NDArray[Any], keep: float) -> None:
    """``moment = keep * moment + (1 - keep) * value`` in place."""
    moment *= keep
    moment += (1 - keep) * value


def _decay(
    parameters: Floats, gradients: Floats, learning_rate: float, weight_decay: float, decoupled: bool
) -> NDArray[Any]:
    """The gradient to follow; decoupled decay shrinks the parameters right here."""
    if weight_decay == 0:
        return gradients
    if not decoupled:
        return gradients + weight_decay * parameters
    parameters *= 1 - learning_rate * weight_decay
    return gradients
