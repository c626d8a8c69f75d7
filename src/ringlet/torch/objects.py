"""Objects that travel or go into files without pickle: an *outline* of JSON, and the tensors that it refers to.

What :mod:`ringlet.io.encoding` knows, and with it dense tensors and dtypes, come back as they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringlet.io import encoding
from ringlet.io.encoding import Leaf
from ringlet.torch.tensors import NUMPY_DTYPES, dtype_name, from_array, to_array

_DTYPES = {dtype_name(dtype): dtype for dtype in NUMPY_DTYPES}
_TORCH_DTYPES = {array_dtype: dtype for dtype, array_dtype in NUMPY_DTYPES.items()}
_LEAVES = (
    Leaf(
        "tensor",
        Tensor,
        lambda value: to_array(value) if value.layout is torch.strided and value.dtype in NUMPY_DTYPES else None,
        from_array,
    ),
    Leaf(
        "dtype",
        torch.dtype,
        lambda value: dtype_name(value) if value in NUMPY_DTYPES else None,
        _DTYPES.__getitem__,
    ),
)


def split(value: Any, what: str = "the object") -> tuple[Any, list[Tensor]]:
    """Outline and tensors; ``what`` is what errors call the object."""
    outline, arrays = encoding.split(value, what, leaves=_LEAVES, is_plain=_TORCH_DTYPES.__contains__)
    return outline, [from_array(np.require(array, requirements=["C", "W"])) for array in arrays]


def join(outline: Any, tensors: Sequence[Tensor]) -> Any:
    """What :func:`split` was given; whatever does not fit together is a ValueError."""
    return encoding.join(outline, [to_array(tensor) for tensor in tensors], leaves=_LEAVES)


def blank_tensors(outline: Any) -> list[Tensor]:
    """New tensors of the forms that an outline tells, in its order."""
    return [
        torch.empty(shape, dtype=_TORCH_DTYPES[dtype])
        if dtype in _TORCH_DTYPES
        else torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8)
        for dtype, shape in encoding.forms(outline)
    ]
