"""bfloat16: the upper half of a float32. The one place that says how numbers are rounded to it.

A stored number is the nearest one, of two equally near ones that whose last bit is zero. Numbers too small to be normal
(below 1.2e-38) become zeros, with their sign, as processors with instructions for bfloat16 do it; what is not a number
stays none. NumPy knows the type by the package ``ml_dtypes``, whose own conversion keeps numbers that are not normal.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

_MAGNITUDE, _INFINITY, _SMALLEST = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x00800000)
_SIGN, _QUIET = np.uint32(0x80000000), np.uint32(0x00400000)


def item_size(dtype: DTypeLike) -> int:
    """Bytes of a number; NumPy knows bfloat16 by name since this module was imported."""
    return np.dtype(dtype).itemsize


def parameter_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The type of parameters, statistics, targets and results where activations have ``dtype``."""
    found = np.dtype(dtype)
    return np.dtype(np.float32) if found == BFLOAT16 else found


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """float32 as bfloat16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    magnitude = bits & _MAGNITUDE
    result = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    result = np.where(magnitude < _SMALLEST, bits & _SIGN, result)
    result = np.where(magnitude > _INFINITY, bits | _QUIET, result)
    narrow: NDArray[Any] = (result >> np.uint32(16)).astype(np.uint16).view(BFLOAT16)
    return narrow


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as float32, which has all of its numbers."""
    wide: NDArray[Any] = np.empty(values.shape, np.float32)
    widen(wide, values)
    return wide


def widen(wide: NDArray[Any], values: NDArray[Any]) -> None:
    """The same into an array that is there."""
    np.left_shift(values.view(np.uint16), np.uint32(16), out=wide.view(np.uint32), dtype=np.uint32)
