"""What a state may hold, and how it becomes JSON and arrays: no pickle, and everything comes back as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CheckpointError, UsageError

KINDS = (bool, int, float, str, list, tuple, dict, np.ndarray, np.generic, type(None))
_AS_BYTES = ("complex64", "complex128", "bfloat16")
"""Types that the file has no name for: their bytes are kept."""

Arrays = dict[str, NDArray[Any]]


def check(name: str, value: object) -> None:
    """Refuse what can certainly not be kept; what lists and dictionaries hold is looked at when they are written."""
    if not isinstance(value, KINDS) or (isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject):
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__qualname__
        raise UsageError(
            f"'{name}' of the state is of type {kind}, which cannot be kept: expected a NumPy array of numbers, or "
            "what JSON has: None, truth values, numbers, texts, lists and dictionaries of them"
        )


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Facts in JSON and arrays by name. Tuples become lists."""
    facts: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in values.items():
        kind = _array_kind(value)
        if kind is None:
            _require_json(name, value)
            facts[name] = {"kind": "json", "value": value}
            continue
        array = np.asarray(value)
        as_bytes = array.dtype.name in _AS_BYTES
        facts[name] = {"kind": kind} | ({"type": array.dtype.name, "shape": list(array.shape)} if as_bytes else {})
        arrays[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if as_bytes else array
    return facts, arrays


def _require_json(name: str, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"'{name}' of the state cannot be kept: {error}. Lists and dictionaries may hold what JSON has, numbers "
            "that are not finite and arrays only as values of their own"
        ) from None


def _array_kind(value: Any) -> str | None:
    """How an array stands for the value; None if JSON does. Infinities are no numbers of JSON."""
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, np.generic):
        return "scalar"
    return "float" if isinstance(value, float) and not math.isfinite(value) else None


def join(facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The values from what :func:`split` gave; what does not fit together is a CheckpointError."""
    try:
        return {name: _value(fact, arrays.get(name)) for name, fact in facts.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"its values and arrays do not fit together: {error}") from None


def _value(fact: dict[str, Any], array: NDArray[Any] | None) -> Any:
    if fact["kind"] == "json":
        return fact["value"]
    if array is None:
        raise KeyError("an array is missing")
    if "type" in fact:
        array = array.view(_dtype(fact["type"])).reshape(fact["shape"])
    if fact["kind"] == "array":
        return array
    scalar = array[()]
    return float(scalar) if fact["kind"] == "float" else scalar


def _dtype(name: str) -> np.dtype[Any]:
    if name not in _AS_BYTES:
        raise ValueError(f"unknown type {name!a}")
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401  NumPy knows the name from now on

    return np.dtype(name)
