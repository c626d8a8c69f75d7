"""Named arrays as a safetensors file, written to any stream straight from their own memory.

The library's own writer makes a copy of everything first; for the checkpoints of a large network that is felt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.models import jsontext

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
LENGTH_BYTES = 8
"""The length of the header comes first."""
_ALIGNMENT = 8


def write_tensors(
    stream: BinaryIO, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write ``arrays``, whose types are those of :data:`DTYPES`; contiguous ones are not copied."""
    ordered = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name in ordered:
        array = arrays[name]
        stop = position + array.nbytes
        shape = [int(extent) for extent in array.shape]
        header[name] = {"dtype": NAMES[array.dtype], "shape": shape, "data_offsets": [position, stop]}
        position = stop
    text = jsontext.canonical(header).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    stream.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
    for name in ordered:
        stream.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
