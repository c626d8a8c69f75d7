"""Kernels on activations in bfloat16, in terms of those in float32.

Activations and their gradients are stored in bfloat16, everything else (parameters and their gradients, statistics,
targets) in float32. A kernel computes in float32 and rounds what it stores, once: see :mod:`ringlet.kernels.bfloat16`.
The weights of convolutions and dense layers are rounded to bfloat16, too, before they are multiplied. A product of two
such numbers is exact in float32, so only sums round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.bfloat16 import BFLOAT16, rounded, widened

P = ParamSpec("P")
R = TypeVar("R")

_WRITTEN = ("out", "y", "dx", "dprediction")
"""What kernels call the activations that they write."""
_MULTIPLIED = "weight"


def mixed(kernel: Callable[P, R]) -> Callable[P, R]:
    """``kernel``, which also takes activations in bfloat16."""
    parameters = signature(kernel)

    @wraps(kernel)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        if not any(_is_narrow(value) for value in (*arguments, *options.values())):
            return kernel(*arguments, **options)
        given = parameters.bind(*arguments, **options)
        wide = _Widened()
        replaced = {name: wide.of(value) for name, value in given.arguments.items()}
        if _MULTIPLIED in replaced:
            replaced[_MULTIPLIED] = widened(rounded(replaced[_MULTIPLIED]))
        result = kernel(**replaced)  # type: ignore[call-arg]
        for name in _WRITTEN:
            if _is_narrow(given.arguments.get(name)):
                given.arguments[name][...] = rounded(replaced[name])
        return result

    return run


class _Widened:
    """Copies in float32; arguments that are the same memory get the same copy."""

    def __init__(self) -> None:
        self._copies: dict[int, NDArray[Any]] = {}

    def of(self, value: Any) -> Any:
        if not _is_narrow(value):
            return value
        address = value.ctypes.data
        if address not in self._copies:
            self._copies[address] = widened(value)
        return self._copies[address].reshape(value.shape)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == BFLOAT16
