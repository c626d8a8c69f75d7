"""Tensors of a process group as flat arrays, and PyTorch's ways to combine them as Ringlet's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ringlet.comm.contract import Array, Communicator, Op
from ringlet.errors import CommunicationError
from ringlet.torch.tensors import check_tensor, from_array, store, to_array

_OPS = {"SUM": Op.SUM, "AVG": Op.AVERAGE, "PRODUCT": Op.PRODUCT, "MIN": Op.MIN, "MAX": Op.MAX, "PREMUL_SUM": Op.SUM}
_BITWISE = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
_CHUNK_ELEMENTS = 1 << 18
"""How many elements of each rank are combined at once where NumPy does it."""


@dataclass(frozen=True)
class InOut:
    """A tensor and its values as a flat array: its own memory if it is contiguous on the CPU, else a copy."""

    tensor: Tensor
    array: Array

    def store(self) -> None:
        """Give the tensor the values of the array."""
        store(self.tensor, self.array)


def borrow(tensor: Tensor) -> InOut:
    """The values of a dense tensor in the order of its indices."""
    return InOut(tensor, to_array(check_tensor(tensor)).reshape(-1))


def borrow_all(tensors: Sequence[Tensor]) -> list[InOut]:
    """The values of several."""
    return [borrow(tensor) for tensor in tensors]


def joined(parts: list[InOut]) -> Array:
    """The values of several tensors of one dtype, one after the other."""
    return parts[0].array if len(parts) == 1 else np.concatenate([part.array for part in parts])


def hand_out(values: Array, targets: list[InOut]) -> None:
    """Consecutive pieces of ``values`` to tensors that they fit exactly."""
    start = 0
    for target in targets:
        target.array[:] = values[start : start + target.array.size]
        target.store()
        start += target.array.size


@dataclass(frozen=True)
class Combining:
    """How values of ranks become one: by an operation of the communicator, or bit by bit."""

    op: Op = Op.SUM
    bitwise: Callable[..., Any] | None = None
    factor: float | Tensor | None = None
    """Of every rank's values before they are added."""

    def allreduce(self, communicator: Communicator, array: Array, out: Array | None = None) -> Array:
        """``array`` combined over all ranks."""
        if self.bitwise is not None:
            return self._combine_bits(communicator, array, out)
        if self._is_whole_average(array):
            return _divided(communicator.allreduce(array, Op.SUM, out=out), communicator.size)
        return communicator.allreduce(self._scaled(array), self.op, out=out)

    def reduce_scatter(self, communicator: Communicator, rows: Array) -> Array:
        """This rank's row of the combined ones: there is one for every rank."""
        if self.bitwise is not None:
            whole = self._combine_bits(communicator, rows.reshape(-1), None)
            return whole.reshape(rows.shape)[communicator.rank : communicator.rank + 1].reshape(-1)
        if self._is_whole_average(rows):
            return _divided(communicator.reduce_scatter(rows, Op.SUM), communicator.size).reshape(-1)
        return communicator.reduce_scatter(self._scaled(rows), self.op).reshape(-1)

    def _is_whole_average(self, array: Array) -> bool:
        """Averages of whole numbers are whole for PyTorch: rounded towards zero."""
        return self.op is Op.AVERAGE and array.dtype.kind in "iu"

    def _scaled(self, array: Array) -> Array:
        if self.factor is None:
            return array
        return np.multiply(array, float(self.factor), dtype=array.dtype)

    def _combine_bits(self, communicator: Communicator, array: Array, out: Array | None) -> Array:
        assert self.bitwise is not None
        if array.dtype.kind not in "biu":
            raise CommunicationError(
                f"values of dtype {array.dtype.name} cannot be combined bit by bit: expected whole numbers or booleans"
            )
        result = np.empty_like(array) if out is None else out
        for start in range(0, max(array.size, 1), _CHUNK_ELEMENTS):
            piece = array[start : start + _CHUNK_ELEMENTS]
            rows = communicator.allgather(piece).reshape(communicator.size, piece.size)
            total = rows[0].copy()
            for row in rows[1:]:
                self.bitwise(total, row, out=total)
            result[start : start + piece.size] = total
        return result


def _divided(total: Array, number: int) -> Array:
    negative = total < 0
    np.abs(total, out=total)
    np.floor_divide(total, number, out=total)
    return np.negative(total, out=total, where=negative)


def combining(kind: Any) -> Combining:
    """Ringlet's way for a ``ReduceOp`` or one of its kinds; default: the sum."""
    if kind is None:
        return Combining()
    operation: Any = kind if isinstance(kind, ReduceOp) else ReduceOp(kind)
    name = operation.op.name
    if name in _BITWISE:
        return Combining(bitwise=_BITWISE[name])
    if name not in _OPS:
        raise CommunicationError(f"unknown ReduceOp {name}: expected one of {', '.join([*_OPS, *_BITWISE])}")
    return Combining(_OPS[name], factor=operation.factor if name == "PREMUL_SUM" else None)


def allreduce_sparse(communicator: Communicator, tensor: Tensor, how: Combining) -> Tensor:
    """The sum or average of sparse tensors of all ranks: indices and values of all, those of one place added up."""
    if how.op not in (Op.SUM, Op.AVERAGE) or how.bitwise is not None or how.factor is not None:
        raise CommunicationError("sparse tensors can be combined by ReduceOp.SUM and AVG only: use tensor.to_dense()")
    own = tensor.detach().coalesce()
    indices = communicator.allgather(to_array(own.indices().t()))
    values = from_array(communicator.allgather(to_array(own.values())))
    if how.op is Op.AVERAGE:
        values = values / communicator.size
    places = from_array(indices).t()
    total = torch.sparse_coo_tensor(places, values, tensor.shape, check_invariants=False).coalesce()
    with torch.no_grad():
        return tensor.copy_(total)
