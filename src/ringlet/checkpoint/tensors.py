"""Named arrays in safetensors files: checked when they are written, read without trust in the file."""

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
from ringlet.errors import CheckpointError, UnreadableCheckpointError
from ringlet.models import jsontext, tensor_stream
from ringlet.models.attributes import is_integer, show
from ringlet.models.tensor_stream import DTYPES, LENGTH_BYTES

MAX_HEADER = 8 << 20
MAX_DIMENSIONS = 32
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
    """Write ``arrays`` as a safetensors file; what could not be read back is refused."""
    for name, array in arrays.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise CheckpointError(f"array name {show(name)}: expected letters, digits, '_', '.' and '-'")
        if not isinstance(array, np.ndarray) or array.dtype not in tensor_stream.NAMES or array.ndim > MAX_DIMENSIONS:
            kind = getattr(array, "dtype", type(array).__name__)
            raise CheckpointError(
                f"array '{name}' is of {kind}: expected a NumPy array of {', '.join(map(str, tensor_stream.NAMES))}"
            )
    tensor_stream.write_tensors(stream, arrays)


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
            _check_layout(entries, size - LENGTH_BYTES - num_header_bytes)
            return {entry.name: _read_array(file, entry) for entry in entries}
        except CheckpointError as error:
            raise CheckpointError(f"{path.name}: {error}") from None
        except OSError as error:
            raise UnreadableCheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from None


def _read_header(file: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    limit = min(size - LENGTH_BYTES, MAX_HEADER)
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
