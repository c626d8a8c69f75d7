"""Named arrays as a safetensors file: written straight from their own memory, read without trust in the file.

The library's own writer makes a copy of everything first; for the checkpoints of a large network that is felt. Here
lengths, types and places are checked before memory is asked for; what is wrong is a ``ValueError`` with a message for
people, which callers turn into an error of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import show
from ringlet.io import jsontext

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""What the format calls the types of elements that are written."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER = 8 << 20
MAX_DIMENSIONS = 32
_LENGTH_BYTES = 8
"""The length of the header comes first."""
_ALIGNMENT = 8
_METADATA = "__metadata__"
_KEYS = frozenset({"dtype", "shape", "data_offsets"})


# -- writing ----------------------------------------------------------------------------------------------------------
def write_tensors(
    stream: BinaryIO, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write ``arrays``, whose types are those of :data:`DTYPES`; contiguous ones are not copied."""
    ordered = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {} if metadata is None else {_METADATA: dict(metadata)}
    position = 0
    for name in ordered:
        array = arrays[name]
        stop = position + array.nbytes
        shape = [int(extent) for extent in array.shape]
        header[name] = {"dtype": NAMES[array.dtype], "shape": shape, "data_offsets": [position, stop]}
        position = stop
    text = jsontext.canonical(header).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    stream.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for name in ordered:
        stream.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


# -- reading ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Entry:
    """A tensor's type, shape and place in the file, relative to the end of the header."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Header:
    """What a file says that it holds, in the order of its places."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    num_bytes: int
    """What follows the header."""


def read_header(file: BufferedReader, size: int) -> Header:
    """The checked header of an open file of ``size`` bytes, which is then at its first array."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    available = size - _LENGTH_BYTES
    if not 2 <= length <= min(available, MAX_HEADER):
        raise ValueError(f"is not a safetensors file or is truncated ({size:,} bytes)")
    raw = file.read(length)
    if len(raw) != length:
        raise ValueError("ends inside its header: the file is truncated")
    try:
        content = jsontext.parse(raw.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"its header is not valid: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("its header is not a JSON object")
    metadata = content.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not a mapping of texts")
    entries = sorted((_entry(name, value) for name, value in content.items()), key=lambda one: (one.start, one.stop))
    return Header({entry.name: entry for entry in entries}, metadata, available - length)


def read_arrays(file: BufferedReader, header: Header) -> dict[str, NDArray[Any]]:
    """All arrays of a file whose header was read; they must lie one after the other and fill the rest of it."""
    _check_layout(header)
    return {name: _array(file, entry) for name, entry in header.entries.items()}


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise ValueError(f"tensor {show(name)} is not described by dtype, shape and data_offsets: {show(value)}")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"tensor {show(name)} has dtype {show(kind)}, expected {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"tensor {show(name)} has shape {show(shape)}")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {show(name)} has data_offsets {show(offsets)}, expected two positions")
    return Entry(name, DTYPES[kind], tuple(shape), *offsets)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < 1 << 62 for entry in value
    )


def _check_layout(header: Header) -> None:
    position = 0
    for entry in header.entries.values():
        expected = position + math.prod(entry.shape) * entry.dtype.itemsize
        if (entry.start, entry.stop) != (position, expected):
            raise ValueError(
                f"tensor {show(entry.name)} lies at bytes {entry.start} to {entry.stop}, expected {position} to "
                f"{expected}"
            )
        position = expected
    if position != header.num_bytes:
        raise ValueError(
            f"has {header.num_bytes:,} bytes of tensors, expected {position:,}: it is truncated or damaged"
        )


def _array(file: BufferedReader, entry: Entry) -> NDArray[Any]:
    array = np.empty(math.prod(entry.shape), entry.dtype)
    view = memoryview(array.view(np.uint8).data) if array.nbytes else memoryview(b"")
    position = 0
    while position < len(view):
        count = file.readinto(view[position:])
        if not count:
            raise ValueError(f"ends inside tensor {show(entry.name)}: the file is truncated")
        position += count
    try:
        return array.reshape(entry.shape)
    except ValueError as error:  # extents of an empty array whose product overflows
        raise ValueError(f"tensor {show(entry.name)} has an impossible shape: {error}") from None
