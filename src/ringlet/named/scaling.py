"""Factors before and after a reduction, for every dtype."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ringlet.comm import arrays
from ringlet.comm.contract import Array, Op
from ringlet.named.checks import OPS
from ringlet.named.requests import Reduction


class Recipe(NamedTuple):
    """How a reduction is made of one that communicators have."""

    op: Op
    before: float
    after: float
    divisor: int
    """Sums of whole numbers are divided by it, cut towards zero."""


@lru_cache(1024)
def recipe(dtype: np.dtype[Any], op: Reduction, prescale: float, postscale: float, size: int) -> Recipe:
    """For sums of float32, float64 and complex numbers all factors become one, behind the sum."""
    how = Op.SUM if op is Reduction.ADASUM else OPS[op]
    if dtype.kind in "fc" and not arrays.is_half(dtype) and op in (Reduction.SUM, Reduction.AVERAGE):
        factor = prescale * postscale
        if factor != 1.0 and op is Reduction.AVERAGE:
            return Recipe(Op.SUM, 1.0, factor / size, 1)
        return Recipe(how, 1.0, factor, 1)
    if dtype.kind in "biu" and op is Reduction.AVERAGE:
        return Recipe(Op.SUM, prescale, postscale, size)
    return Recipe(how, prescale, postscale, 1)


def scaled(array: Array, factor: float) -> Array:
    """A new array ``factor * array`` of the same dtype; the array itself for factor 1. Whole numbers are cut."""
    if factor == 1.0:
        return array
    if arrays.is_half(array.dtype):
        return (array.astype(np.float32) * np.float32(factor)).astype(array.dtype)
    if array.dtype.kind in "iu":
        return (array * float(factor)).astype(array.dtype)
    product: Array = np.multiply(array, array.dtype.type(factor))
    return product


def finish(array: Array, how: Recipe) -> None:
    """Apply what comes behind the reduction, in place."""
    if how.divisor != 1:
        quotient = array // how.divisor
        quotient += ((quotient < 0) & (quotient * how.divisor != array)).astype(array.dtype)  # towards zero
        np.copyto(array, quotient)
    if how.after == 1.0:
        return
    if array.dtype.kind == "f" and not arrays.is_half(array.dtype):
        np.multiply(array, array.dtype.type(how.after), out=array)
    else:
        np.copyto(array, scaled(array, how.after))
