"""Nested values without pickle: an *outline* in JSON, and the arrays that it refers to.

None, truth values, numbers, texts, bytes, NumPy arrays and scalars, and lists, tuples, sets, dictionaries and
argparse.Namespaces of them come back as they were; types of other libraries join as a :class:`Leaf`. :func:`split`
and :func:`join` serve those who store or send the arrays in a way of their own. :func:`dumps` and :func:`loads` make
bytes, which may come from anywhere: what is not such a value raises :class:`DataError`, and nothing is executed.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from argparse import Namespace
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError, UsageError
from ringlet.io.disk import write_whole

Form = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of an array."""
_SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, type[Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_EXTENDED_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types of ml_dtypes: NumPy knows their names once that is imported."""
_MAGIC = b"ringlet value 2\n"
_LENGTH = struct.Struct("<Q")
"""Bytes of the outline."""
_MAX_NOTHINGS = 1 << 16
"""Elements without bytes (empty texts) of an array; a few bytes could else ask for a copy of any number of them."""


@dataclass(frozen=True)
class Leaf:
    """A further type of values: ``take`` makes an array or a text of one (None: it cannot), ``give`` the value."""

    kind: str
    type: type[Any]
    take: Callable[[Any], NDArray[Any] | str | None]
    give: Callable[[Any], Any]


# -- outline and arrays -----------------------------------------------------------------------------------------------
def split(
    value: Any,
    what: str = "the value",
    *,
    leaves: Sequence[Leaf] = (),
    is_plain: Callable[[np.dtype[Any]], bool] = lambda _: True,
) -> tuple[Any, list[NDArray[Any]]]:
    """The outline (JSON with finite numbers) and the arrays of a value; ``what`` is what errors call it.

    Arrays share the memory of the value where they can. Those of types that are not ``is_plain`` become bytes.
    """
    splitter = _Splitter(leaves, is_plain)
    try:
        return splitter.outline(value, what), splitter.arrays
    except RecursionError:
        raise _too_deep(what) from None


def join(outline: Any, arrays: Sequence[NDArray[Any]], *, leaves: Sequence[Leaf] = ()) -> Any:
    """What :func:`split` was given; whatever does not fit together is a ValueError."""
    try:
        return _Joiner(arrays, leaves).value(outline)
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is no outline of a value: {error!r}") from None


def forms(outline: Any) -> list[Form]:
    """Type and shape of each array that an outline refers to, in order; ValueError if it is no outline."""
    found: dict[int, Form] = {}
    try:
        _collect_forms(outline, found)
    except (TypeError, KeyError, AttributeError, SyntaxError) as error:
        raise ValueError(f"this is no outline of a value: {error!r}") from None
    if sorted(found) != list(range(len(found))):
        raise ValueError(f"it refers to the arrays {sorted(found)[:8]}")
    return [found[place] for place in sorted(found)]


@final
class _Splitter:
    """Makes an outline, and collects arrays on the way."""

    def __init__(self, leaves: Sequence[Leaf], is_plain: Callable[[np.dtype[Any]], bool]) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._leaves, self._is_plain = leaves, is_plain

    def outline(self, value: Any, what: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"kind": "float", "name": repr(value)}
        if type(value) in _SEQUENCES.values() or (isinstance(value, tuple) and not hasattr(value, "_fields")):
            items = [self.outline(item, f"{what}[{index}]") for index, item in enumerate(value)]
            return {"kind": type(value).__name__ if type(value) in _SEQUENCES.values() else "tuple", "items": items}
        for leaf in self._leaves:
            if isinstance(value, leaf.type):
                return self._leaf(leaf, value, what)
        if isinstance(value, Mapping):  # what defaultdict and the like do for missing keys is lost
            pairs = [[self.outline(key, what), self.outline(item, f"{what}[{key!r}]")] for key, item in value.items()]
            return {"kind": type(value).__name__ if type(value) in _MAPPINGS.values() else "dict", "items": pairs}
        if type(value) is Namespace:
            pairs = [[key, self.outline(item, f"{what}.{key}")] for key, item in vars(value).items()]
            return {"kind": "Namespace", "items": pairs}
        if type(value) is bytes:
            return {"kind": "bytes", "text": base64.b64encode(value).decode()}
        if type(value) is complex:
            return {"kind": "complex", "parts": [self.outline(part, what) for part in (value.real, value.imag)]}
        if isinstance(value, np.ndarray | np.generic):
            return self._array("array" if isinstance(value, np.ndarray) else "number", np.asarray(value), what)
        raise _refused(value, what)

    def _leaf(self, leaf: Leaf, value: Any, what: str) -> dict[str, Any]:
        taken = leaf.take(value)
        if taken is None:
            raise _refused(value, what)
        return {"kind": leaf.kind, "name": taken} if isinstance(taken, str) else self._array(leaf.kind, taken, what)

    def _array(self, kind: str, array: NDArray[Any], what: str) -> dict[str, Any]:
        dtype = array.dtype
        if dtype.hasobject or (dtype.kind == "V" and dtype.names is None and dtype.name not in _EXTENDED_TYPES):
            raise UsageError(
                f"{what} is an array of {dtype}, which cannot travel between ranks or go into a file: expected numbers"
            )
        form = [_type_text(dtype), list(array.shape)]
        self.arrays.append(array if self._is_plain(dtype) else _bytes_of(array))
        return {"kind": kind, "place": len(self.arrays) - 1, "form": form}


def _refused(value: Any, what: str) -> UsageError:
    return UsageError(
        f"{what} is of type {type(value).__module__}.{type(value).__qualname__}, which cannot travel between ranks or "
        "go into a file: expected None, numbers, texts, bytes, dense tensors, arrays, and lists, tuples, sets and "
        "dictionaries of them"
    )


def _too_deep(what: str) -> UsageError:
    return UsageError(f"{what} is nested too deeply, or holds itself")


@final
class _Joiner:
    """Makes a value of its outline and arrays."""

    def __init__(self, arrays: Sequence[NDArray[Any]], leaves: Sequence[Leaf]) -> None:
        self._arrays, self._leaves = arrays, {leaf.kind: leaf for leaf in leaves}

    def value(self, outline: Any) -> Any:
        if not isinstance(outline, dict):
            return outline
        kind = outline["kind"]
        if kind in _MAPPINGS:
            pairs = [(self.value(key), self.value(item)) for key, item in outline["items"]]
            return _MAPPINGS[kind](dict(pairs) if kind == "Counter" else pairs)
        if kind == "Namespace":
            return Namespace(**{key: self.value(item) for key, item in outline["items"]})
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](self.value(item) for item in outline["items"])
        if kind == "float":
            return float(outline["name"])
        if kind == "bytes":
            return base64.b64decode(outline["text"])
        if kind == "complex":
            return complex(*map(self.value, outline["parts"]))
        if kind in ("array", "number"):
            array = self._array(outline)
            return array[()] if kind == "number" else array
        leaf = self._leaves[kind]
        return leaf.give(outline["name"] if "name" in outline else self._array(outline))

    def _array(self, outline: Mapping[str, Any]) -> NDArray[Any]:
        place, (dtype, shape) = outline["place"], _form(outline)
        array: NDArray[Any] = self._arrays[place]
        if array.dtype == dtype and array.shape == shape:
            return array
        if place < 0 or array.dtype != np.uint8 or array.ndim != 1:
            raise ValueError(f"an array of {array.dtype}, {array.shape} stands for one of {dtype}, {shape}")
        if not array.size:
            return np.zeros(_checked(dtype, shape, 0), dtype)
        viewed: NDArray[Any] = array.view(dtype)
        return viewed.reshape(shape)


def _form(outline: Mapping[str, Any]) -> Form:
    text, shape = outline["form"]
    dtype = _type_of(text)
    if dtype.hasobject or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"an array of {dtype} and shape {shape}")
    return dtype, tuple(shape)


def _collect_forms(outline: Any, found: dict[int, Form]) -> None:
    if isinstance(outline, list):
        for item in outline:
            _collect_forms(item, found)
    elif isinstance(outline, dict):
        if "place" in outline:
            found[outline["place"]] = _form(outline)
        else:
            _collect_forms(outline.get("items", []), found)


def _type_text(dtype: np.dtype[Any]) -> Any:
    """A name that NumPy knows, or for records the list of fields."""
    if dtype.names is not None:
        return dtype.descr
    named = dtype.name in _EXTENDED_TYPES or (dtype.kind in "biufc" and dtype.isnative)
    return dtype.name if named else dtype.str


def _type_of(text: Any) -> np.dtype[Any]:
    """Records are lists of fields, whose tuples JSON has made lists."""
    if isinstance(text, str):
        if text in _EXTENDED_TYPES:
            import ml_dtypes  # noqa: F401  NumPy knows the name from now on
        return np.dtype(text)
    return np.dtype([(name, _type_of(kind), *(tuple(extent) for extent in shape)) for name, kind, *shape in text])


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)


def _checked(dtype: np.dtype[Any], shape: tuple[int, ...], num_bytes: int) -> tuple[int, ...]:
    """A shape for which there are bytes enough."""
    count = math.prod(shape)
    if count * max(dtype.itemsize, 1) > (num_bytes if dtype.itemsize else _MAX_NOTHINGS):
        raise ValueError("an array is longer than all bytes")
    return shape


# -- bytes and files --------------------------------------------------------------------------------------------------
def dumps(value: Any, what: str) -> bytes:
    """The value as bytes; ``what`` names it in errors."""
    outline, arrays = split(value, what)
    try:
        text = json.dumps(outline, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise _too_deep(what) from None
    return b"".join([_MAGIC, _LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])


def loads(data: bytes) -> Any:
    """What :func:`dumps` gave."""
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("they begin otherwise")
        start = len(_MAGIC) + _LENGTH.size
        stop = start + _LENGTH.unpack_from(data, len(_MAGIC))[0]
        outline = json.loads(data[start:stop])
        return join(outline, _cut(data, stop, forms(outline)))
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise DataError(f"{len(data)} bytes are no value that Ringlet encoded: {error}") from None


def _cut(data: bytes, start: int, wanted: Sequence[Form]) -> list[NDArray[Any]]:
    """The arrays that lie one after the other from ``start`` to the very end."""
    arrays: list[NDArray[Any]] = []
    for dtype, shape in wanted:
        count = math.prod(_checked(dtype, shape, len(data) - start))
        flat = np.frombuffer(data, dtype, count, start) if count and dtype.itemsize else np.zeros(count, dtype)
        arrays.append(flat.reshape(shape).copy())
        start += count * dtype.itemsize
    if start != len(data):
        raise ValueError("there are more bytes than arrays")
    return arrays


def save(value: Any, path: Path, what: str) -> None:
    """Write a file that :func:`load` reads, completely or not at all; ``what`` names the value in errors."""
    write_whole(path, dumps(value, what), durable=False)


def load(path: Path) -> Any:
    """What :func:`save` wrote."""
    return loads(path.read_bytes())
