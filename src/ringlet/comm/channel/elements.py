"""How arrays of each dtype are combined inside a channel, and the NumPy form of it.

The numbers of elements and combinations are those of ``native/kernels.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Op

ELEMENTS = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
)  # fmt: skip
COMBINATIONS = (Op.SUM, Op.AVERAGE, Op.MIN, Op.MAX, Op.PRODUCT)

STORAGE = tuple(np.dtype(np.uint16 if name == "bfloat16" else name) for name in ELEMENTS)
"""The dtype as which an element's memory is passed around."""

_UFUNCS = (np.add, np.add, np.minimum, np.maximum, np.multiply)


class Form(NamedTuple):
    """How a channel combines some dtype by some operation."""

    element: int
    how: int


def form_of(dtype: np.dtype[Any], op: Op) -> Form | None:
    """The form, or None for what channels do not combine themselves: products of complex numbers, long doubles, …"""
    if dtype.kind == "b":  # as bytes 0 and 1: *or* is the larger one, *and* the smaller one
        return Form(ELEMENTS.index("uint8"), COMBINATIONS.index(Op.MAX if op in (Op.SUM, Op.MAX) else Op.MIN))
    name = dtype.name
    if dtype.kind == "c" and op in (Op.SUM, Op.AVERAGE):
        name = f"float{dtype.itemsize * 4}"
    if name not in ELEMENTS or not dtype.isnative:
        return None
    return Form(ELEMENTS.index(name), COMBINATIONS.index(op))


def combine(form: Form, sources: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """``sources`` (flat, of the element's storage) combined in their order, into ``out`` (none of them)."""
    ufunc = _UFUNCS[form.how]
    total = widen(form.element, sources[0]).copy()
    with np.errstate(all="ignore"):
        for source in sources[1:]:
            ufunc(total, widen(form.element, source), out=total)
        if COMBINATIONS[form.how] is Op.AVERAGE:
            np.divide(total, len(sources), out=total)
        out[:] = narrow(form.element, total)


def widen(element: int, values: NDArray[Any]) -> NDArray[Any]:
    """Values in the dtype in which they are combined: 16-bit floating point as float32."""
    if ELEMENTS[element] == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32) if ELEMENTS[element] == "float16" else values


def narrow(element: int, values: NDArray[Any]) -> NDArray[Any]:
    """The reverse of :func:`widen`, rounded to nearest, ties to even."""
    if ELEMENTS[element] == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(values), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
    return values.astype(np.float16) if ELEMENTS[element] == "float16" else values
