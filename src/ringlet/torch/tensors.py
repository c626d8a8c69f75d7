"""Tensors and NumPy arrays that share memory where they can: the border between PyTorch and the collectives.

A contiguous tensor of the CPU *is* its array. Others (strided, on a GPU) travel as a copy in the order of their
indices, because the ranks' layouts need not agree. Where ranks have agreed on layouts (``buckets``), any dense layout
is kept: :func:`slot` gives a view of flat memory with the strides of a tensor.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from ringlet.comm.contract import Array
from ringlet.named import ArgumentsError
from ringlet.named.horovod import CastCompressor

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.uint16: np.dtype(np.uint16),
    torch.int16: np.dtype(np.int16),
    torch.uint32: np.dtype(np.uint32),
    torch.int32: np.dtype(np.int32),
    torch.uint64: np.dtype(np.uint64),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: BFLOAT16,
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}
"""The dtypes that travel."""
_TYPE_TEXTS = {dtype: found.str for dtype, found in NUMPY_DTYPES.items()}
_TYPE_TEXTS[torch.bfloat16] = np.dtype(np.int16).str  # of the same size: NumPy itself has none


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The array dtype of the same bytes."""
    found = NUMPY_DTYPES.get(dtype)
    if found is None:
        known = ", ".join(dtype_name(known) for known in NUMPY_DTYPES)
        raise ArgumentsError(f"a tensor of dtype {dtype} cannot travel between ranks: expected one of {known}")
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """Without PyTorch's own."""
    return str(dtype).removeprefix("torch.")


def check_tensor(value: object) -> Tensor:
    """The tensor itself; refuses other things and what has no dense values."""
    if not isinstance(value, Tensor):
        raise ArgumentsError(f"expected a tensor, not {type(value).__qualname__}: convert it with torch.as_tensor(…)")
    if value.layout is not torch.strided:
        raise ArgumentsError(
            f"a tensor of layout {value.layout} cannot travel as it is: use sparse_allreduce_async or tensor.to_dense()"
        )
    return value


def shares_memory(tensor: Tensor) -> bool:
    """Whether :func:`to_array` gives the memory of the tensor itself."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def to_array(tensor: Tensor) -> Array:
    """The values of a dense tensor in C order: its own memory where :func:`shares_memory`, else a copy."""
    numpy_dtype(tensor.dtype)
    plain = tensor.detach() if tensor.requires_grad else tensor
    if not shares_memory(plain):
        plain = plain.resolve_conj().resolve_neg().to("cpu").contiguous()
    values: Array = np.asarray(_Memory(plain))
    return values.view(BFLOAT16) if plain.dtype is torch.bfloat16 else values


class _Memory:
    """The memory of a contiguous tensor of the CPU, as NumPy asks for it; arrays keep the tensor through it.

    ``Tensor.numpy`` gives the same array, but forbids forever that the storage is resized, as FSDP does in every step.
    """

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        address = tensor.data_ptr()
        if not address and tensor.numel():
            raise ArgumentsError(
                f"a {type(tensor).__qualname__} of shape {tuple(tensor.shape)} has no memory: it was freed, or lies in "
                "other tensors. Pass one that has its values; of a DTensor, its to_local()"
            )
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": tuple(tensor.shape),
            "typestr": _TYPE_TEXTS[tensor.dtype],
        }


def from_array(array: Array, device: torch.device | None = None) -> Tensor:
    """A tensor over the memory of a writeable C-ordered array; a copy if ``device`` is not the CPU."""
    if array.dtype == BFLOAT16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor if device is None or device.type == "cpu" else tensor.to(device)


def store(tensor: Tensor, array: Array) -> None:
    """Give a tensor the values of an array, which may be its own memory."""
    if not shares_memory(tensor):
        tensor.detach().copy_(from_array(array).view(tensor.shape))
    elif not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)  # autograd notices that values changed


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill a piece of memory without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, extent in sorted((stride, extent) for stride, extent in layout(tensor)):
        if stride != expected:
            return False
        expected *= extent
    return True


def layout(tensor: Tensor) -> list[tuple[int, int]]:
    """Stride and extent of every dimension that has more than one index: what places elements in memory."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [(stride, extent) for stride, extent in pairs if extent != 1]


def slot(memory: Array, like: Tensor) -> Tensor:
    """Flat memory as a tensor of the shape and (if dense) the layout of ``like``; no other tensor knows the memory."""
    flat = from_array(memory)
    return flat.as_strided(like.shape, like.stride()) if is_dense(like) else flat.view(like.shape)


# -- what travels in place of a tensor --------------------------------------------------------------------------------
class _TensorCompressor(CastCompressor):
    @staticmethod
    def dtype_of(tensor: Tensor) -> str:
        """The name of its dtype."""
        return dtype_name(tensor.dtype)

    @staticmethod
    def cast(tensor: Tensor, dtype: str) -> Tensor:
        """The same values in another dtype."""
        converted: Tensor = tensor.to(getattr(torch, dtype))
        return converted


class NoneCompressor(_TensorCompressor):
    """Tensors travel as they are."""


class FP16Compressor(_TensorCompressor):
    """Floating tensors travel as float16: 11 significant bits, up to 65504."""

    wire = "float16"


class BF16Compressor(_TensorCompressor):
    """Floating tensors travel as bfloat16: 8 significant bits, the range of float32."""

    wire = "bfloat16"


class Compression:
    """What travels: ``Compression.none``, ``Compression.fp16`` and ``Compression.bf16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
