"""Values as files without pickle: JSON for their structure, one npz for the arrays in them.

None, truth values, numbers, strings, bytes, lists, tuples, dicts and NumPy arrays and scalars come back as they were.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import UsageError

_TAG = "__ringlet__"
_EXTENDED_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types of ml_dtypes, which npz would not bring back: they travel as integers of the same size."""


def save(value: Any, path: Path, what: str) -> None:
    """Write ``path`` and beside it ``path.npz``; ``what`` names the value in errors. Complete files or none."""
    arrays: dict[str, NDArray[Any]] = {}
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


def _encode(value: Any, arrays: dict[str, NDArray[Any]], what: str) -> Any:
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


def _encode_array(value: NDArray[Any] | np.generic, arrays: dict[str, NDArray[Any]], what: str) -> dict[str, Any]:
    array = np.asarray(value)
    extended = array.dtype.name if array.dtype.name in _EXTENDED_TYPES else None
    if array.dtype.hasobject or (array.dtype.kind == "V" and array.dtype.names is None and extended is None):
        raise UsageError(f"{what} is an array of {array.dtype}, which cannot be sent to workers: expected numbers")
    name = f"array{len(arrays)}"
    arrays[name] = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if extended else array
    return {_TAG: "array", "name": name, "scalar": isinstance(value, np.generic), "type": extended}


def _decode(document: Any, arrays: dict[str, NDArray[Any]]) -> Any:
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
        import ml_dtypes

        array = array.view(getattr(ml_dtypes, document["type"]))
    return array[()] if document["scalar"] else array
