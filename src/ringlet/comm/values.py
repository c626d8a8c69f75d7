"""Values without pickle: as files (JSON for their structure, one npz for the arrays in them) or as bytes for the wire.

None, truth values, numbers, strings, bytes, lists, tuples, dicts and NumPy arrays and scalars come back as they were.
Bytes may come from anywhere: what is not such a value raises :class:`DataError`, and nothing in it is executed.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError, UsageError

_TAG = "__ringlet__"
_EXTENDED_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types of ml_dtypes, which npz would not bring back: they travel as integers of the same size."""
_MAGIC = b"ringlet value 1\n"
_HEAD = struct.Struct("<QQ")
"""Bytes of the document, bytes of the descriptions of arrays."""
_MAX_NOTHINGS = 1 << 16
"""Elements without bytes (empty texts) of an array; a few bytes could else ask for a copy of any number of them."""

Arrays = dict[str, NDArray[Any]]


def save(value: Any, path: Path, what: str) -> None:
    """Write ``path`` and beside it ``path.npz``; ``what`` names the value in errors. Complete files or none."""
    arrays: Arrays = {}
    document = _encode(value, arrays, what)
    packed, text = path.with_suffix(".npz.part"), path.with_suffix(".part")
    with packed.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    text.write_text(json.dumps(document), encoding="utf-8")
    packed.replace(path.with_suffix(".npz"))
    text.replace(path)


def load(path: Path) -> Any:
    """What :func:`save` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        return _decode(document, dict(arrays))


def dumps(value: Any, what: str) -> bytes:
    """The value as bytes; ``what`` names it in errors."""
    arrays: Arrays = {}
    document = json.dumps(_encode(value, arrays, what)).encode()
    about = json.dumps([[_type_text(array.dtype), *array.shape] for array in arrays.values()]).encode()
    parts = [_MAGIC, _HEAD.pack(len(document), len(about)), document, about]
    return b"".join([*parts, *(np.ascontiguousarray(array).tobytes() for array in arrays.values())])


def loads(data: bytes) -> Any:
    """What :func:`dumps` gave."""
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("they begin otherwise")
        num_document, num_about = _HEAD.unpack_from(data, len(_MAGIC))
        start = len(_MAGIC) + _HEAD.size
        middle = start + num_document
        document, about = json.loads(data[start:middle]), json.loads(data[middle : middle + num_about])
        return _decode(document, _cut(data, middle + num_about, about))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error, RecursionError) as error:
        raise DataError(f"{len(data)} bytes are no value that Ringlet encoded: {error}") from None


def _cut(data: bytes, start: int, about: list[list[Any]]) -> Arrays:
    """The arrays that lie behind each other from ``start`` to the very end."""
    arrays: Arrays = {}
    for type_text, *shape in about:
        dtype = np.dtype(_type_of(type_text))
        if dtype.hasobject or not all(type(extent) is int and extent >= 0 for extent in shape):
            raise ValueError(f"an array of {dtype} and shape {shape}")
        count = math.prod(shape)
        if count * max(dtype.itemsize, 1) > (len(data) - start if dtype.itemsize else _MAX_NOTHINGS):
            raise ValueError("an array is longer than all bytes")
        flat = np.frombuffer(data, dtype, count, start) if count and dtype.itemsize else np.zeros(count, dtype)
        arrays[f"array{len(arrays)}"] = flat.reshape(shape).copy()
        start += count * dtype.itemsize
    if start != len(data):
        raise ValueError("there are more bytes than arrays")
    return arrays


def _type_text(dtype: np.dtype[Any]) -> Any:
    return dtype.descr if dtype.names is not None else dtype.str


def _type_of(text: Any) -> Any:
    """Records are lists of fields, whose tuples JSON has made lists."""
    if isinstance(text, str):
        return text
    return [(name, _type_of(kind), *(tuple(extent) for extent in shape)) for name, kind, *shape in text]


def _encode(value: Any, arrays: Arrays, what: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encode(item, arrays, f"{what}[{index}]") for index, item in enumerate(value)]
    if type(value) is dict and all(type(key) is str for key in value) and _TAG not in value:
        return {key: _encode(item, arrays, f"{what}[{key!r}]") for key, item in value.items()}
    if type(value) in (dict, tuple):
        items = [list(pair) for pair in value.items()] if type(value) is dict else list(value)
        return {_TAG: type(value).__name__, "items": _encode(items, arrays, what)}
    if type(value) in (bytes, complex):
        text = base64.b64encode(value).decode() if type(value) is bytes else [value.real, value.imag]
        return {_TAG: type(value).__name__, "value": text}
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(value, arrays, what)
    raise UsageError(
        f"{what} is of type {type(value).__module__}.{type(value).__qualname__}, which cannot be sent to workers: "
        f"expected None, numbers, strings, bytes, lists, tuples, dicts and NumPy arrays"
    )


def _encode_array(value: NDArray[Any] | np.generic, arrays: Arrays, what: str) -> dict[str, Any]:
    array = np.asarray(value)
    extended = array.dtype.name if array.dtype.name in _EXTENDED_TYPES else None
    if array.dtype.hasobject or (array.dtype.kind == "V" and array.dtype.names is None and extended is None):
        raise UsageError(f"{what} is an array of {array.dtype}, which cannot be sent to workers: expected numbers")
    name = f"array{len(arrays)}"
    arrays[name] = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if extended else array
    return {_TAG: "array", "name": name, "scalar": isinstance(value, np.generic), "type": extended}


def _decode(document: Any, arrays: Arrays) -> Any:
    if isinstance(document, list):
        return [_decode(item, arrays) for item in document]
    if not isinstance(document, dict):
        return document
    kind = document.get(_TAG)
    if kind is None:
        return {key: _decode(item, arrays) for key, item in document.items()}
    if kind in ("tuple", "dict"):
        items = _decode(document["items"], arrays)
        return tuple(items) if kind == "tuple" else {key: item for key, item in items}  # noqa: C416
    if kind == "bytes":
        return base64.b64decode(document["value"])
    if kind == "complex":
        return complex(*document["value"])
    array = arrays[document["name"]]
    if document["type"]:
        array = array.view(_extended_type(document["type"]))
    return array[()] if document["scalar"] else array


def _extended_type(name: str) -> Any:
    if name not in _EXTENDED_TYPES:
        raise ValueError(f"unknown type {name!a}")
    import ml_dtypes

    return getattr(ml_dtypes, name)
