"""How values of ranks become one: Horovod's reductions in terms of those that communicators have, and Adasum.

Adasum (Maleki et al., 2021) adds what two gradients do not have in common and averages what they have.

    a' = (1 - a·b / (2 |a|²)) a + (1 - a·b / (2 |b|²)) b

Ranks are paired as in a tournament: 0 with 1, 2 with 3, then the winners. Every rank holds one slice of all ranks'
values and combines it along the whole tree; only the dot products travel between the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlet.comm import arrays
from ringlet.comm.contract import Array, Communicator, Op


class Reduction(Enum):
    """How values of ranks are combined, element by element; the average of whole numbers is cut towards zero."""

    AVERAGE = "average"
    SUM = "sum"
    ADASUM = "adasum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


_OPS = {
    Reduction.SUM: Op.SUM,
    Reduction.AVERAGE: Op.AVERAGE,
    Reduction.ADASUM: Op.SUM,
    Reduction.MIN: Op.MIN,
    Reduction.MAX: Op.MAX,
    Reduction.PRODUCT: Op.PRODUCT,
}


# -- factors before and after a reduction -----------------------------------------------------------------------------
class Recipe(NamedTuple):
    """How a reduction is made of one that communicators have."""

    op: Op
    before: float
    after: float
    divisor: int
    """Sums of whole numbers are divided by it, cut towards zero."""


@lru_cache(1024)
def recipe(dtype: np.dtype[Any], op: Reduction, prescale: float, postscale: float, size: int) -> Recipe:
    """``prescale`` comes before the reduction: inputs whose sum would overflow can be made smaller by it.

    The average of float32, float64 and complex numbers takes ``postscale`` and its division in one factor.
    """
    is_wide = dtype.kind in "fc" and not arrays.is_half(dtype)
    if is_wide and op is Reduction.AVERAGE and postscale != 1.0:
        return Recipe(Op.SUM, prescale, postscale / size, 1)
    if dtype.kind in "biu" and op is Reduction.AVERAGE:
        return Recipe(Op.SUM, prescale, postscale, size)
    return Recipe(_OPS[op], prescale, postscale, 1)


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
    """Apply what comes after the reduction, in place."""
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


# -- Adasum -----------------------------------------------------------------------------------------------------------
def is_power_of_two(size: int) -> bool:
    """Whether a tournament of so many ranks has no byes."""
    return size > 0 and size & (size - 1) == 0


def adasum(communicator: Communicator, tensors: Sequence[Array]) -> list[Array]:
    """Each tensor combined over all ranks, by its own dot products; every rank must call, with equal shapes.

    float16 and bfloat16 are computed in float32, dot products in float64. The results are the same on every rank.
    """
    if not tensors:
        return []
    size, dtype = communicator.size, tensors[0].dtype
    wide = arrays.accumulator(dtype)
    flat = np.concatenate([tensor.reshape(-1) for tensor in tensors])
    slices = _slices_of_all_ranks(communicator, flat).astype(wide)
    borders = _borders([tensor.size for tensor in tensors], *arrays.part(flat.size, communicator.rank, size))
    while len(slices) > 1:
        slices = _combine_pairs(communicator, slices, borders)
    result = communicator.allgather(slices[0].astype(dtype))
    ends = np.cumsum([tensor.size for tensor in tensors])
    parts = np.split(result, ends[:-1])
    return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def _slices_of_all_ranks(communicator: Communicator, flat: Array) -> Array:
    """This rank's slice of all ranks' values: a row for each rank."""
    splits = arrays.part_lengths(flat.size, communicator.size)
    received, _ = communicator.alltoall(flat, splits)
    return received.reshape(communicator.size, splits[communicator.rank])


def _borders(sizes: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
    """Where each tensor begins and ends within the slice ``start … stop`` of all of them; empty where it is not."""
    ends = np.cumsum([0, *sizes])
    inside = (np.clip(ends, start, stop) - start).tolist()
    return list(pairwise(inside))


def _combine_pairs(communicator: Communicator, slices: Array, borders: Sequence[tuple[int, int]]) -> Array:
    """One round of the tournament."""
    left, right = slices[0::2], slices[1::2]
    partial = np.zeros((len(left), len(borders), 3), np.float64)
    for place, (start, stop) in enumerate(borders):
        a, b = left[:, start:stop].astype(np.float64), right[:, start:stop].astype(np.float64)
        partial[:, place, 0] = (a * b).sum(axis=1)
        partial[:, place, 1] = (a * a).sum(axis=1)
        partial[:, place, 2] = (b * b).sum(axis=1)
    weights = _weights(communicator.allreduce(partial))
    combined = np.empty_like(left)
    for place, (start, stop) in enumerate(borders):
        wa, wb = weights[:, place, 0, None], weights[:, place, 1, None]
        combined[:, start:stop] = wa * left[:, start:stop] + wb * right[:, start:stop]
    return combined


def _weights(products: NDArray[Any]) -> NDArray[np.float64]:
    """The factors of a and b from (a·b, |a|², |b|²); one where a vector is zero."""
    dot, squares = products[..., :1], products[..., 1:]
    safe = np.where(squares > 0, squares, 1.0)
    return np.where(squares > 0, 1.0 - dot / (2.0 * safe), 1.0)
