"""The collectives under Horovod's names: blocking, in place, asynchronous and grouped.

Operations are keyed by ``name``, so ranks may submit them in any order; without one they are numbered, and must then
come in the same order on every rank. Tensors of one name must agree in shape, dtype and options, or all ranks get an
error, after which the next operation works. Blocking forms that give new tensors are differentiable.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringlet.named import ArgumentsError, ProcessSet, Reduction, Request, session
from ringlet.named.session import global_process_set
from ringlet.torch import autograd, operations
from ringlet.torch.compression import Compression, Compressor
from ringlet.torch.handles import Handle
from ringlet.torch.operations import Scaling, Splits, check_group
from ringlet.torch.tensors import from_array, to_array

Average = Reduction.AVERAGE
"""The mean over ranks."""
Sum = Reduction.SUM
"""The sum over ranks."""
Adasum = Reduction.ADASUM
"""A sum that adds what is orthogonal and averages what is parallel (Maleki et al. 2021)."""
Min = Reduction.MIN
"""The least value over ranks, element by element."""
Max = Reduction.MAX
"""The largest value over ranks, element by element."""
Product = Reduction.PRODUCT
"""The product over ranks, element by element."""


def _scaling(op: Reduction | None, average: bool | None, prescale: float, postscale: float) -> Scaling:
    if average is not None:
        if op is not None:
            raise ArgumentsError(f"both op={op} and average={average} were given: expected op alone")
        warnings.warn("average=… has been replaced: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        op = Average if average else Sum
    return Scaling(check_op(op), float(prescale), float(postscale))


def check_op(op: object) -> Reduction:
    """The reduction itself, Average for None."""
    if op is None:
        return Average
    if not isinstance(op, Reduction):
        raise ArgumentsError(f"op={op!r} is no reduction: expected Average, Sum, Adasum, Min, Max or Product")
    return op


# -- allreduce --------------------------------------------------------------------------------------------------------
def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The tensors of all ranks combined, element by element; ``op=None`` means Average. The input stays as it is.

    Inputs are multiplied by ``prescale_factor``, results by ``postscale_factor``.
    """
    how = _scaling(op, average, prescale_factor, postscale_factor)
    compressed, ctx = compression.compress(tensor)
    (combined,) = autograd.allreduce([compressed], name, how, process_set)
    return compression.decompress(combined, ctx)


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start :func:`allreduce`; the handle is for :func:`poll` and :func:`synchronize`. Not differentiable."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    return _single(operations.allreduce([tensor], name, how, process_set))


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """:func:`allreduce` in place."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    return _first(operations.allreduce([tensor], name, how, process_set, in_place=True).run())


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start :func:`allreduce_`."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    return _single(operations.allreduce([tensor], name, how, process_set, in_place=True))


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """:func:`allreduce` of several tensors as one operation: all or none."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    pairs = [compression.compress(tensor) for tensor in check_group(tensors)]
    combined = autograd.allreduce([compressed for compressed, _ in pairs], name, how, process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(combined, pairs, strict=True)]


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start :func:`grouped_allreduce`."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    return operations.allreduce(check_group(tensors), name, how, process_set).start()


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """:func:`grouped_allreduce` in place."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    results: list[Tensor] = operations.allreduce(check_group(tensors), name, how, process_set, in_place=True).run()
    return results


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start :func:`grouped_allreduce_`."""
    how = _scaling(op, average, prescale_factor, postscale_factor)
    return operations.allreduce(check_group(tensors), name, how, process_set, in_place=True).start()


def sparse_allreduce_async(
    tensor: Tensor, name: str | None = None, op: Reduction | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start the sum or average of sparse COO tensors: indices and values of all ranks are gathered.

    :func:`synchronize` gives a sparse tensor that is not coalesced: rows which several ranks have appear several times.
    """
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.sparse_coo:
        raise ArgumentsError("sparse_allreduce_async takes a sparse COO tensor: use allreduce_async for dense ones")
    how = check_op(op)
    if how not in (Average, Sum):
        raise ArgumentsError(f"op={how} of sparse tensors: expected Average or Sum")
    own = tensor.detach().coalesce()
    engine = session.engine(process_set)
    form = np.array([tensor.shape], np.int64)
    gathered = (to_array(own.indices().t().contiguous()), to_array(own.values()), form)
    request = Request("allgather", name or engine.default_name("sparse_allreduce"), gathered)
    device, num_ranks = tensor.device, engine.size

    def finish(results: list[list[Any]]) -> Tensor:
        *parts, forms = results[0]
        if (forms != form).any():
            told = "; ".join(f"rank {rank}: {shape}" for rank, shape in zip(engine.ranks, forms.tolist(), strict=True))
            raise ArgumentsError(f"the shapes of sparse tensors '{request.name}' differ: {told}")
        indices, values = (from_array(array, device) for array in parts)
        if how is Average:
            values = values / num_ranks
        return torch.sparse_coo_tensor(indices.t(), values, tuple(forms[0].tolist()), check_invariants=False)

    return Handle([engine.submit(request)], finish)


# -- allgather --------------------------------------------------------------------------------------------------------
def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """The tensors of all ranks, one after the other along dimension 0, whose length may differ between ranks."""
    return autograd.allgather([tensor], name, process_set)[0]


def allgather_async(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle:
    """Start :func:`allgather`."""
    return _single(operations.allgather([tensor], name, process_set))


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """:func:`allgather` of several tensors as one operation."""
    return autograd.allgather(check_group(tensors), name, process_set)


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start :func:`grouped_allgather`."""
    return operations.allgather(check_group(tensors), name, process_set).start()


# -- broadcast --------------------------------------------------------------------------------------------------------
def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The tensor of ``root_rank``: a rank of the whole job, in process sets too. The input stays as it is."""
    return autograd.broadcast(tensor, root_rank, name, process_set)


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start :func:`broadcast`."""
    return _single(operations.broadcast([tensor], root_rank, name, process_set, in_place=False))


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """:func:`broadcast` in place."""
    return _first(operations.broadcast([tensor], root_rank, name, process_set, in_place=True).run())


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start :func:`broadcast_`."""
    return _single(operations.broadcast([tensor], root_rank, name, process_set, in_place=True))


# -- alltoall, reducescatter ------------------------------------------------------------------------------------------
def alltoall(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Send ``splits[r]`` rows to each rank r (default: equal parts), and give what came.

    With ``splits`` the result is a pair: the rows, and how many came from each rank.
    """
    rows, received = autograd.alltoall(tensor, splits, name, process_set)
    return rows if splits is None else (rows, received)


def alltoall_async(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start an :func:`alltoall`; :func:`synchronize` gives the pair, with or without ``splits``, as Horovod does."""
    return operations.alltoall(tensor, splits, name, process_set).start()


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's part of dimension 0 of the combined tensors; the lowest ranks take the remainder."""
    how = _scaling(op, None, prescale_factor, postscale_factor)
    compressed, ctx = compression.compress(tensor)
    (part,) = autograd.reducescatter([compressed], name, how, process_set)
    return compression.decompress(part, ctx)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start :func:`reducescatter`."""
    how = _scaling(op, None, prescale_factor, postscale_factor)
    return _single(operations.reducescatter([tensor], name, how, process_set))


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """:func:`reducescatter` of several tensors as one operation."""
    how = _scaling(op, None, prescale_factor, postscale_factor)
    pairs = [compression.compress(tensor) for tensor in check_group(tensors)]
    parts = autograd.reducescatter([compressed for compressed, _ in pairs], name, how, process_set)
    return [compression.decompress(part, ctx) for part, (_, ctx) in zip(parts, pairs, strict=True)]


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start :func:`grouped_reducescatter`."""
    how = _scaling(op, None, prescale_factor, postscale_factor)
    return operations.reducescatter(check_group(tensors), name, how, process_set).start()


# -- without tensors --------------------------------------------------------------------------------------------------
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks of the process set have come here."""
    engine = session.engine(process_set)
    engine.run(Request("barrier", engine.default_name("barrier")))


def join(device: int = -1) -> int:  # noqa: ARG001
    """Have no more data: wait until all ranks have joined, and give the rank that joined last, the same everywhere.

    Meanwhile this rank takes part in the others' allreduces with zeros; an Average still divides by all ranks. Other
    collectives raise until all have joined. ``device`` is Horovod's and has no meaning here.
    """
    (last,) = session.engine().run(Request("join", "join"))
    return int(last)


def _first(tensors: list[Tensor]) -> Tensor:
    return tensors[0]


def _single(operation: operations.Operation) -> Handle:
    """Started, for one tensor: the result is that tensor, not a list."""
    finish = operation.finish
    return operations.Operation(operation.engine, operation.request, lambda arrays: finish(arrays)[0]).start()
