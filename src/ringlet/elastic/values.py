"""What a state may hold, and how it becomes JSON and arrays: see :mod:`ringlet.io.encoding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CheckpointError, UsageError
from ringlet.io import encoding, safetensors

KINDS = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, np.ndarray, np.generic, type(None))
_OLD_KINDS = {"array": "array", "scalar": "number", "float": "number"}

Arrays = dict[str, NDArray[Any]]


def check(name: str, value: object) -> None:
    """Refuse what can certainly not be kept; what lists and dictionaries hold is looked at when they are written."""
    if not isinstance(value, KINDS) or (isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject):
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__qualname__
        raise UsageError(
            f"'{name}' of the state is of type {kind}, which cannot be kept: expected None, truth values, numbers, "
            "texts, bytes, NumPy arrays, and lists, tuples, sets and dictionaries of them"
        )


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """An outline in JSON, and arrays of types that safetensors files have."""
    try:
        outline, arrays = encoding.split(dict(values), "the state", is_plain=safetensors.NAMES.__contains__)
    except UsageError as error:
        raise CheckpointError(f"the state cannot be kept: {error}") from None
    return outline, {f"array{place}": array for place, array in enumerate(arrays)}


def join(outline: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The values from what :func:`split` gave; what does not fit together is a CheckpointError."""
    try:
        if not isinstance(outline.get("kind"), str):
            return _join_old(outline, arrays)
        values: dict[str, Any] = encoding.join(outline, [arrays[f"array{place}"] for place in range(len(arrays))])
        return values
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"its values and arrays do not fit together: {error}") from None


def _join_old(facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """From a commit of an earlier format, which described every value by itself."""
    values = {}
    for name, fact in facts.items():
        if fact["kind"] == "json":
            values[name] = fact["value"]
            continue
        array = arrays[name]
        form = [fact["type"], fact["shape"]] if "type" in fact else [array.dtype.name, list(array.shape)]
        value = encoding.join({"kind": _OLD_KINDS[fact["kind"]], "place": 0, "form": form}, [array])
        values[name] = float(value) if fact["kind"] == "float" else value
    return values
