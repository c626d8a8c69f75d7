"""Named arrays in safetensors files: written from their own memory, read without trust in the file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint.manifest import open_regular
from ringlet.errors import CheckpointError
from ringlet.models import jsontext
from ringlet.models.attributes import is_integer, show

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
MAX_HEADER = 8 << 20
MAX_DIMENSIONS = 32
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH_BYTES, _ALIGNMENT = 8, 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")
_KEYS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class _Entry:
    """A tensor's place in the file, relative to the end of the header."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


def write_tensors(stream: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``arrays`` as a safetensors file; contiguous ones are not copied."""
    _check(arrays)
    ordered = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    position = 0
    for name in ordered:
        array = arrays[name]
        stop = position + array.nbytes
        shape = [int(extent) for extent in array.shape]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": shape, "data_offsets": [position, stop]}
        position = stop
    text = jsontext.canonical(header).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    stream.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for name in ordered:
        stream.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def _check(arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise CheckpointError(f"array name {show(name)}: expected letters, digits, '_', '.' and '-'")
        if not isinstance(array, np.ndarray) or array.dtype not in _NAMES or array.ndim > MAX_DIMENSIONS:
            kind = getattr(array, "dtype", type(array).__name__)
            raise CheckpointError(
                f"array '{name}' is of {kind}: expected a NumPy array of {', '.join(map(str, _NAMES))}"
            )


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a safetensors file; it asks for no more memory than the file has bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            header, num_header_bytes = _read_header(file, size)
            entries = sorted(
                (_read_entry(name, value) for name, value in header.items()),
                key=lambda entry: (entry.start, entry.stop),
            )
            _check_layout(entries, size - _LENGTH_BYTES - num_header_bytes)
            return {entry.name: _read_array(file, entry) for entry in entries}
        except (CheckpointError, OSError) as error:
            raise CheckpointError(f"{path.name}: {error}") from None


def _read_header(file: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    limit = min(size - _LENGTH_BYTES, MAX_HEADER)
    if not 2 <= length <= limit:
        raise CheckpointError(
            f"is not a safetensors file: a header of {length:,} bytes, expected 2 to {max(limit, 2):,}"
        )
    try:
        header = jsontext.parse(file.read(length).decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"its header is not valid: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError("its header is not a JSON object")
    header.pop("__metadata__", None)
    return header, length


def _read_entry(name: str, value: Any) -> _Entry:
    if _NAME.fullmatch(name) is None:
        raise CheckpointError(f"array name {show(name)}: expected letters, digits, '_', '.' and '-'")
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise CheckpointError(f"array '{name}' is not described by dtype, shape and data_offsets: {show(value)}")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise CheckpointError(f"array '{name}' has dtype {show(kind)}, expected {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(f"array '{name}' has shape {show(shape)}")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"array '{name}' has data_offsets {show(offsets)}, expected two positions")
    return _Entry(name, DTYPES[kind], tuple(shape), *offsets)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(is_integer(entry) and 0 <= entry < 1 << 62 for entry in value)


def _check_layout(entries: list[_Entry], num_bytes: int) -> None:
    """Arrays lie one after the other, without gap or overlap, and fill the rest of the file."""
    position = 0
    for entry in entries:
        expected = position + math.prod(entry.shape) * entry.dtype.itemsize
        if (entry.start, entry.stop) != (position, expected):
            raise CheckpointError(
                f"array '{entry.name}' lies at bytes {entry.start} to {entry.stop}, expected {position} to {expected}"
            )
        position = expected
    if position != num_bytes:
        raise CheckpointError(f"has {num_bytes:,} bytes of arrays, expected {position:,}")


def _read_array(file: BufferedReader, entry: _Entry) -> NDArray[Any]:
    count = math.prod(entry.shape)
    array = np.empty(count, entry.dtype)
    if array.nbytes and file.readinto(array.view(np.uint8).data) != array.nbytes:
        raise CheckpointError(f"ends inside array '{entry.name}'")
    try:
        return array.reshape(entry.shape)
    except ValueError as error:  # extents of an empty array whose product overflows
        raise CheckpointError(f"array '{entry.name}' has an impossible shape: {error}") from None
