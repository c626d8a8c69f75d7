"""Activation functions whose derivative is computed from their own output, and softmax.

No argument overflows: exponentials are only taken of numbers that are not positive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import UnknownNameError
from ringlet.kernels.contract import ARCTANH_LIMIT, Activation, Floats
from ringlet.kernels.reference.movement import store


def activation_forward(kind: Activation, x: Floats, y: Floats, *, slope: float) -> None:
    """``y = f(x)``; ``slope`` is leaky ReLU's. ``y`` may be ``x``."""
    y[...] = _lookup(_FORWARD, kind)(x, slope)


def activation_backward(kind: Activation, y: Floats, dy: Floats, dx: Floats, *, slope: float, accumulate: bool) -> None:
    """``dx = dy * f'(x)`` where ``f'`` is computed from ``y = f(x)``. ``dx`` may be ``dy``."""
    store(dy * _lookup(_DERIVATIVE, kind)(y, slope), dx, accumulate)


def softmax_forward(x: Floats, y: Floats) -> None:
    """Softmax over the first axis, shifted by the maximum. ``y`` may be ``x``."""
    exponentials = np.exp(x - x.max(axis=0))
    np.divide(exponentials, exponentials.sum(axis=0), out=y)


def softmax_backward(y: Floats, dy: Floats, dx: Floats, *, accumulate: bool) -> None:
    """``dx = y * (dy - sum_c y dy)``."""
    store(y * (dy - (y * dy).sum(axis=0)), dx, accumulate)


def _sigmoid(x: Floats) -> NDArray[Any]:
    """``1 / (1 + exp(-x))``, as ``exp(x) / (1 + exp(x))`` on the negative side."""
    exponential = np.exp(-np.abs(x))
    sigmoid: NDArray[Any] = np.where(x >= 0, 1, exponential) / (1 + exponential)
    return sigmoid


def _arctanh(x: Floats) -> NDArray[Any]:
    below_one = 1 - 2 * np.finfo(x.dtype).eps
    return np.clip(np.arctanh(np.clip(x, -below_one, below_one)), -ARCTANH_LIMIT, ARCTANH_LIMIT)


def _arctanh_derivative(y: Floats) -> NDArray[Any]:
    """``1 / (1 - x²) = cosh²(y)``."""
    return np.where(np.abs(y) < ARCTANH_LIMIT, np.cosh(y) ** 2, 0)


_Elementwise = Callable[[Floats, float], NDArray[Any]]

_FORWARD: dict[str, _Elementwise] = {
    "relu": lambda x, _: np.maximum(x, 0),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "relu6": lambda x, _: np.clip(x, 0, 6),
    "sigmoid": lambda x, _: _sigmoid(x),
    "tanh": lambda x, _: np.tanh(x),
    "arctanh": lambda x, _: _arctanh(x),
    "log_sigmoid": lambda x, _: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
}

_DERIVATIVE: dict[str, _Elementwise] = {
    "relu": lambda y, _: y > 0,
    "leaky_relu": lambda y, slope: np.where(y > 0, 1, slope).astype(y.dtype),
    "relu6": lambda y, _: (y > 0) & (y < 6),
    "sigmoid": lambda y, _: y * (1 - y),
    "tanh": lambda y, _: 1 - y * y,
    "arctanh": lambda y, _: _arctanh_derivative(y),
    "log_sigmoid": lambda y, _: -np.expm1(y),  # 1 - sigmoid(x), and exp(y) = sigmoid(x)
}


def _lookup(table: dict[str, _Elementwise], kind: str) -> _Elementwise:
    if kind not in table:
        raise UnknownNameError("activation", kind, get_args(Activation))
    return table[kind]
