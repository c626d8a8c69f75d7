"""Objects that travel or go into files without pickle: an *outline* of JSON, and the tensors that it refers to.

None, truth values, numbers, texts, bytes, tensors, NumPy arrays and numbers, dtypes, and lists, tuples, sets and
dictionaries of them come back as they were.
"""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringlet.errors import UsageError
from ringlet.torch.tensors import NUMPY_DTYPES, dtype_name, from_array, to_array

_SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, type[Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_DTYPES = {dtype_name(dtype): dtype for dtype in NUMPY_DTYPES}


def split(value: Any, what: str = "the object") -> tuple[Any, list[Tensor]]:
    """Outline and tensors; ``what`` is what errors call the object."""
    tensors: list[Tensor] = []
    return _outline(value, tensors, what), tensors


def join(outline: Any, tensors: Sequence[Tensor]) -> Any:
    """What :func:`split` was given; whatever does not fit together is a ValueError."""
    try:
        return _value(outline, tensors)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no outline of an object: {error!r}") from None


def blank_tensors(outline: Any) -> list[Tensor]:
    """New tensors of the forms that an outline tells, in its order."""
    forms: dict[int, tuple[str, list[int]]] = {}
    _collect_forms(outline, forms)
    return [torch.empty(shape, dtype=_DTYPES[dtype]) for _, (dtype, shape) in sorted(forms.items())]


def _outline(value: Any, tensors: list[Tensor], what: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    kind = type(value).__name__
    if type(value) in _MAPPINGS.values():
        items = [
            [_outline(key, tensors, what), _outline(item, tensors, f"{what}[{key!r}]")] for key, item in value.items()
        ]
        return {"kind": kind, "items": items}
    if type(value) in _SEQUENCES.values():
        return {"kind": kind, "items": [_outline(item, tensors, what) for item in value]}
    if isinstance(value, Mapping):  # defaultdict and the like: what they do for missing keys cannot travel
        return _outline(dict(value), tensors, what)
    if isinstance(value, torch.Size):
        return _outline(tuple(value), tensors, what)
    if isinstance(value, bytes):
        return {"kind": "bytes", "text": base64.b64encode(value).decode()}
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return {"kind": "complex", "parts": [value.real, value.imag]}
    if isinstance(value, torch.dtype) and value in NUMPY_DTYPES:
        return {"kind": "dtype", "name": dtype_name(value)}
    return _tensor_outline(value, tensors, what)


def _tensor_outline(value: Any, tensors: list[Tensor], what: str) -> Any:
    if isinstance(value, Tensor) and value.layout is torch.strided and value.dtype in NUMPY_DTYPES:
        kind, tensor = "tensor", value.detach()
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject and value.dtype.kind not in "SUM":
        kind = "array" if isinstance(value, np.ndarray) else "number"
        tensor = from_array(np.array(value, order="C"))
    else:
        raise UsageError(
            f"{what} is of type {type(value).__module__}.{type(value).__qualname__}, which cannot travel between ranks "
            "or go into a file: expected None, numbers, texts, bytes, dense tensors, arrays, and lists, tuples, sets "
            "and dictionaries of them"
        )
    tensors.append(tensor)
    form = [dtype_name(tensor.dtype), list(tensor.shape)]
    return {"kind": kind, "place": len(tensors) - 1, "form": form}


def _value(outline: Any, tensors: Sequence[Tensor]) -> Any:
    if not isinstance(outline, dict):
        return outline
    kind = outline["kind"]
    if kind in _MAPPINGS:
        pairs = [(_value(key, tensors), _value(item, tensors)) for key, item in outline["items"]]
        return _MAPPINGS[kind](dict(pairs) if kind == "Counter" else pairs)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_value(item, tensors) for item in outline["items"])
    if kind == "bytes":
        return base64.b64decode(outline["text"])
    if kind == "complex":
        return complex(*outline["parts"])
    if kind == "dtype":
        return _DTYPES[outline["name"]]
    tensor = tensors[outline["place"]]
    if kind == "tensor":
        return tensor
    array = to_array(tensor)
    return array[()] if kind == "number" else array


def _collect_forms(outline: Any, forms: dict[int, tuple[str, list[int]]]) -> None:
    if isinstance(outline, list):
        for item in outline:
            _collect_forms(item, forms)
    elif isinstance(outline, dict):
        if "place" in outline:
            forms[outline["place"]] = tuple(outline["form"])
        else:
            _collect_forms(outline.get("items", []), forms)
