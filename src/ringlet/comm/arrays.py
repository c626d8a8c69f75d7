"""What collectives ask about arrays: shares of an axis, which dtype combines how, and where results go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.collective import Array, Op
from ringlet.errors import CommunicationError

HALVES = ("float16", "bfloat16")
"""Names of the dtypes that are accumulated in float32."""

_UFUNCS: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.AVERAGE: np.add,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.PRODUCT: np.multiply,
}


def part(n: int, rank: int, size: int) -> tuple[int, int]:
    """Start and end of the share of ``rank``: contiguous, the first ``n % size`` ranks get one item more."""
    quotient, remainder = divmod(n, size)
    start = rank * quotient + min(rank, remainder)
    return start, start + quotient + (1 if rank < remainder else 0)


def part_lengths(n: int, size: int) -> list[int]:
    """The length of every rank's share."""
    return [n // size + (1 if rank < n % size else 0) for rank in range(size)]


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of the 16-bit floating dtypes."""
    return dtype.name in HALVES


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which values of ``dtype`` are combined."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def check_reduction(dtype: np.dtype[Any], op: Op) -> None:
    """Refuse what cannot be combined: texts, dates, records, and averages of whole numbers."""
    if not isinstance(op, Op):
        raise CommunicationError(f"{op!r} is no operation: expected one of {', '.join(str(known) for known in Op)}")
    if dtype.kind not in "biufc" and not is_half(dtype):
        raise CommunicationError(
            f"values of dtype {dtype.name} cannot be combined by '{op.value}': expected numbers or booleans. "
            "Convert the array, for example with array.astype('float32')"
        )
    if op is Op.AVERAGE and dtype.kind in "biu":
        raise CommunicationError(
            f"an average of dtype {dtype.name} would not be whole: expected a floating or complex dtype. "
            "Convert the array with array.astype('float64'), or use the sum"
        )


def check_movable(dtype: np.dtype[Any]) -> None:
    """Refuse arrays of Python objects: only plain bytes travel."""
    if dtype.hasobject:
        raise CommunicationError(
            f"an array of dtype {dtype} holds Python objects, which do not travel between ranks: expected numbers, "
            "texts of fixed length or records. Convert the array to such a dtype, or encode it as bytes"
        )


def check_rows(array: Array, collective: str) -> None:
    """Refuse arrays without an axis where rows are exchanged."""
    if array.ndim == 0:
        raise CommunicationError(
            f"{collective} works along axis 0, but the array is a single value of dtype {array.dtype.name}. "
            "Give it an axis: array.reshape(1)"
        )


def check_root(root: int, size: int) -> None:
    """Refuse a root that is not a rank."""
    if not 0 <= root < size:
        raise CommunicationError(f"root {root} is not a rank: expected 0 to {size - 1}, as there are {size} ranks")


def check_ranks(ranks: Sequence[int], size: int) -> list[int]:
    """The ranks of a group as plain numbers; refuses doubles and what is not a rank."""
    chosen = [int(rank) for rank in ranks]
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= rank < size for rank in chosen):
        raise CommunicationError(
            f"no group of ranks {chosen}: expected at least one rank, each once, out of 0 to {size - 1}"
        )
    return chosen


def check_splits(rows: int, splits: Sequence[int] | None, size: int) -> list[int]:
    """How many rows go to each rank; equal parts by default."""
    if splits is None:
        if rows % size:
            raise CommunicationError(
                f"{rows} rows cannot be cut into equal parts for {size} ranks. "
                f"Pass splits: {size} numbers of rows that add up to {rows}"
            )
        return [rows // size] * size
    numbers = [int(split) for split in splits]
    if len(numbers) != size or min(numbers) < 0 or sum(numbers) != rows:
        raise CommunicationError(
            f"splits {numbers} do not fit: expected {size} numbers, none negative, that add up to its {rows} rows"
        )
    return numbers


def contiguous(array: Array) -> Array:
    """The same values in C order; a copy only where needed."""
    return array if array.flags.c_contiguous else np.asarray(array, order="C")


def result_array(array: Array, out: Array | None) -> Array:
    """``out`` after a check that the result fits, or a new array."""
    if out is None:
        return np.empty(array.shape, array.dtype)
    if out is array and array.flags.writeable:
        return out
    if out.shape != array.shape or out.dtype != array.dtype:
        raise CommunicationError(
            f"out has shape {out.shape} and dtype {out.dtype.name}: expected shape {array.shape} and dtype "
            f"{array.dtype.name} as the array itself"
        )
    if not out.flags.writeable:
        raise CommunicationError("out cannot be written: expected an array whose flags.writeable is True")
    return out


def copied(array: Array, result: Array | None = None) -> Array:
    """``result`` (default: a new array) with the values of ``array``."""
    if result is None:
        return np.array(array, order="C")
    np.copyto(result, array)
    return result


def flat_target(result: Array) -> Array:
    """Where to work on a flat array: in the memory of ``result`` itself if it is contiguous. See :func:`deliver`."""
    return result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, result.dtype)


def deliver(flat: Array, result: Array) -> Array:
    """``result`` with the values of its :func:`flat_target`."""
    if not result.flags.c_contiguous:
        np.copyto(result, flat.reshape(result.shape))
    return result


def row_size(array: Array) -> int:
    """Elements of one row of axis 0."""
    return math.prod(array.shape[1:])


def row_bytes(array: Array) -> int:
    """Bytes of one row of axis 0."""
    return row_size(array) * array.dtype.itemsize


def as_bytes(array: Array) -> NDArray[np.uint8]:
    """The memory of a contiguous array as a flat array of bytes; a view, never a copy."""
    return array.reshape(-1).view(np.uint8)


def exported(array: Array) -> Array:
    """The array in a form whose memory C++ can ask for: dtypes that Python has no letter for become bytes."""
    return array if is_exported(array.dtype) else as_bytes(array)


def is_exported(dtype: np.dtype[Any]) -> bool:
    """Whether C++ can ask for memory of this dtype as it is."""
    return dtype.kind in "biuf" or dtype.char in "FD"


def combine(op: Op, total: Array, values: Array) -> None:
    """Combine ``values`` into ``total`` in place; ``total`` has the accumulator's dtype."""
    _UFUNCS[op](total, values.astype(total.dtype, copy=False), out=total)


def finish(op: Op, total: Array, size: int) -> None:
    """Turn the sum of ``size`` ranks into an average, in place, if that was asked for."""
    if op is Op.AVERAGE:
        np.divide(total, size, out=total)


# -- as channels combine: numbers of elements and combinations are those of native/kernels.hpp ------------------------
ELEMENTS = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
)  # fmt: skip
COMBINATIONS = (Op.SUM, Op.AVERAGE, Op.MIN, Op.MAX, Op.PRODUCT)

STORAGE = tuple(np.dtype(np.uint16 if name == "bfloat16" else name) for name in ELEMENTS)
"""The dtype as which an element's memory is passed around."""


class Form(NamedTuple):
    """How a channel combines some dtype by some operation."""

    element: int
    how: int
    is_exported: bool = True
    """Whether C++ can ask for the memory as it is; see :func:`exported`."""


def form_of(dtype: np.dtype[Any], op: Op) -> Form | None:
    """The form, or None for what channels do not combine themselves: products of complex numbers, long doubles, …"""
    if dtype.kind == "b":  # as bytes 0 and 1: *or* is the larger one, *and* the smaller one
        return Form(ELEMENTS.index("uint8"), COMBINATIONS.index(Op.MAX if op in (Op.SUM, Op.MAX) else Op.MIN))
    name = dtype.name
    if dtype.kind == "c" and op in (Op.SUM, Op.AVERAGE):
        name = f"float{dtype.itemsize * 4}"
    if name not in ELEMENTS or not dtype.isnative:
        return None
    return Form(ELEMENTS.index(name), COMBINATIONS.index(op), is_exported(dtype))


def combine_elements(form: Form, sources: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """``sources`` (flat, of the element's storage) combined in their order, into ``out`` (none of them)."""
    op = COMBINATIONS[form.how]
    total = _widen(form.element, sources[0]).copy()
    with np.errstate(all="ignore"):
        for source in sources[1:]:
            _UFUNCS[op](total, _widen(form.element, source), out=total)
        finish(op, total, len(sources))
        out[:] = _narrow(form.element, total)


def _widen(element: int, values: NDArray[Any]) -> NDArray[Any]:
    """Values in the dtype in which they are combined: 16-bit floating point as float32."""
    if ELEMENTS[element] == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32) if ELEMENTS[element] == "float16" else values


def _narrow(element: int, values: NDArray[Any]) -> NDArray[Any]:
    """The reverse of :func:`_widen`, rounded to nearest, ties to even."""
    if ELEMENTS[element] == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(values), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
    return values.astype(np.float16) if ELEMENTS[element] == "float16" else values
