"""The collectives under Horovod's names: blocking, in place, asynchronous and grouped.

Operations are keyed by ``name``, so ranks may submit them in any order; without one they are numbered, and must then
come in the same order on every rank. Tensors of one name must agree in shape, dtype and options, or all ranks get an
error, after which the next operation works. Blocking forms that give new tensors are differentiable.

A private function with Horovod's arguments describes each collective; its other forms follow from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np
import torch
from torch import Tensor

from ringlet.named import ArgumentsError, Handle, ProcessSet, Reduction, Submission, horovod, session
from ringlet.named.horovod import Average, Compressor, Scaling, Sum, check_op, scaling
from ringlet.named.session import global_process_set
from ringlet.torch.operations import Splits, TensorCollective, check_group, prepare, prepare_alltoall
from ringlet.torch.tensors import Compression, from_array, to_array

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]


# -- forms that follow from a description -----------------------------------------------------------------------------
Arguments = ParamSpec("Arguments")
Description = Callable[Concatenate[Sequence[Tensor], bool, Arguments], TensorCollective]
"""Takes tensors, whether they take the results, and Horovod's other arguments."""


def _async(
    describe: Description[Arguments], *, in_place: bool = False
) -> Callable[Concatenate[Tensor, Arguments], Handle]:
    def start(tensor: Tensor, *args: Arguments.args, **options: Arguments.kwargs) -> Handle:
        return describe([tensor], in_place, *args, **options).start_single()

    return _presented(start, describe, "{}_async_" if in_place else "{}_async")  # type: ignore[no-any-return]


def _grouped_async(
    describe: Description[Arguments], *, in_place: bool = False
) -> Callable[Concatenate[Sequence[Tensor], Arguments], Handle]:
    def start(tensors: Sequence[Tensor], *args: Arguments.args, **options: Arguments.kwargs) -> Handle:
        return describe(check_group(tensors), in_place, *args, **options).start()

    return _presented(start, describe, "grouped_{}_async_" if in_place else "grouped_{}_async")  # type: ignore[no-any-return]


def _in_place(describe: Description[Arguments]) -> Callable[Concatenate[Tensor, Arguments], Tensor]:
    def run(tensor: Tensor, *args: Arguments.args, **options: Arguments.kwargs) -> Tensor:
        (result,) = describe([tensor], True, *args, **options).run()
        return result  # type: ignore[no-any-return]

    return _presented(run, describe, "{}_")  # type: ignore[no-any-return]


def _grouped_in_place(
    describe: Description[Arguments],
) -> Callable[Concatenate[Sequence[Tensor], Arguments], list[Tensor]]:
    def run(tensors: Sequence[Tensor], *args: Arguments.args, **options: Arguments.kwargs) -> list[Tensor]:
        return describe(check_group(tensors), True, *args, **options).run()  # type: ignore[no-any-return]

    return _presented(run, describe, "grouped_{}_")  # type: ignore[no-any-return]


def _presented(function: Any, describe: Callable[..., Any], name: str) -> Any:
    """With the name and the arguments that users see."""
    function.__name__ = function.__qualname__ = name.format(describe.__name__.removeprefix("_"))
    own, described = inspect.signature(function), inspect.signature(describe)
    first, (_, _, *others) = next(iter(own.parameters.values())), described.parameters.values()
    function.__signature__ = own.replace(parameters=[first, *others])
    return function


def _compressed(
    kind: str,
    tensors: Sequence[Tensor],
    name: str | None,
    compression: type[Compressor],
    how: Scaling,
    process_set: ProcessSet,
) -> list[Tensor]:
    """The blocking form, differentiable; what travels is compressed."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = prepare(kind, [compressed for compressed, _ in pairs], name, process_set, how).differentiate()
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs, strict=True)]


# -- allreduce --------------------------------------------------------------------------------------------------------
def _allreduce(
    tensors: Sequence[Tensor],
    in_place: bool,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> TensorCollective:
    how = scaling(op, average, prescale_factor, postscale_factor, depth=4)
    return prepare("allreduce", tensors, name, process_set, how, in_place=in_place)


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
    how = scaling(op, average, prescale_factor, postscale_factor)
    return _compressed("allreduce", [tensor], name, compression, how, process_set)[0]


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
    how = scaling(op, average, prescale_factor, postscale_factor)
    return _compressed("allreduce", check_group(tensors), name, compression, how, process_set)


allreduce_ = _in_place(_allreduce)
"""``(tensor, average, name, op, prescale_factor, postscale_factor, process_set)``: :func:`allreduce` in place."""
allreduce_async = _async(_allreduce)
"""Start :func:`allreduce` with the arguments of :func:`allreduce_`; the handle is for :func:`poll` and
:func:`synchronize`. Not differentiable."""
allreduce_async_ = _async(_allreduce, in_place=True)
"""Start :func:`allreduce_`."""
grouped_allreduce_ = _grouped_in_place(_allreduce)
""":func:`grouped_allreduce` in place, with the arguments of :func:`allreduce_`."""
grouped_allreduce_async = _grouped_async(_allreduce)
"""Start :func:`grouped_allreduce`, with the arguments of :func:`allreduce_`."""
grouped_allreduce_async_ = _grouped_async(_allreduce, in_place=True)
"""Start :func:`grouped_allreduce_`."""


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
    collectives = session.collectives(process_set)
    form = np.array([tensor.shape], np.int64)
    gathered = (to_array(own.indices().t().contiguous()), to_array(own.values()), form)
    submission = Submission("allgather", name or collectives.default_name("sparse_allreduce"), gathered)
    device, ranks, name = tensor.device, collectives.ranks, submission.name

    def convert(results: list[Any]) -> Tensor:
        *parts, forms = results
        if (forms != form).any():
            told = "; ".join(f"rank {rank}: {shape}" for rank, shape in zip(ranks, forms.tolist(), strict=True))
            raise ArgumentsError(f"the shapes of sparse tensors '{name}' differ: {told}")
        indices, values = (from_array(array, device) for array in parts)
        if how is Average:
            values = values / len(ranks)
        return torch.sparse_coo_tensor(indices.t(), values, tuple(forms[0].tolist()), check_invariants=False)

    return collectives.submit(submission, convert=convert)


# -- allgather --------------------------------------------------------------------------------------------------------
def _allgather(
    tensors: Sequence[Tensor],
    in_place: bool,  # noqa: ARG001
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> TensorCollective:
    return prepare("allgather", tensors, name, process_set)


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """The tensors of all ranks, one after the other along dimension 0, whose length may differ between ranks."""
    return _allgather([tensor], False, name, process_set).differentiate()[0]


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """:func:`allgather` of several tensors as one operation."""
    return _allgather(check_group(tensors), False, name, process_set).differentiate()


allgather_async = _async(_allgather)
"""Start :func:`allgather`."""
grouped_allgather_async = _grouped_async(_allgather)
"""Start :func:`grouped_allgather`."""


# -- broadcast --------------------------------------------------------------------------------------------------------
def _broadcast(
    tensors: Sequence[Tensor],
    in_place: bool,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> TensorCollective:
    return prepare("broadcast", tensors, name, process_set, root_rank=root_rank, in_place=in_place)


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The tensor of ``root_rank``: a rank of the whole job, in process sets too. The input stays as it is."""
    return _broadcast([tensor], False, root_rank, name, process_set).differentiate()[0]


broadcast_ = _in_place(_broadcast)
""":func:`broadcast` in place."""
broadcast_async = _async(_broadcast)
"""Start :func:`broadcast`."""
broadcast_async_ = _async(_broadcast, in_place=True)
"""Start :func:`broadcast_`."""


# -- alltoall, reducescatter ------------------------------------------------------------------------------------------
def alltoall(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Send ``splits[r]`` rows to each rank r (default: equal parts), and give what came.

    With ``splits`` the result is a pair: the rows, and how many came from each rank.
    """
    rows, received = prepare_alltoall(tensor, splits, name, process_set).differentiate()
    return rows if splits is None else (rows, received)


def alltoall_async(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start an :func:`alltoall`; :func:`synchronize` gives the pair, with or without ``splits``, as Horovod does."""
    return prepare_alltoall(tensor, splits, name, process_set).start()


def _reducescatter(
    tensors: Sequence[Tensor],
    in_place: bool,  # noqa: ARG001
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> TensorCollective:
    how = scaling(op, None, prescale_factor, postscale_factor)
    return prepare("reducescatter", tensors, name, process_set, how)


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
    how = scaling(op, None, prescale_factor, postscale_factor)
    return _compressed("reducescatter", [tensor], name, compression, how, process_set)[0]


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
    how = scaling(op, None, prescale_factor, postscale_factor)
    return _compressed("reducescatter", check_group(tensors), name, compression, how, process_set)


reducescatter_async = _async(_reducescatter)
"""``(tensor, name, op, process_set, prescale_factor, postscale_factor)``: start :func:`reducescatter`."""
grouped_reducescatter_async = _grouped_async(_reducescatter)
"""Start :func:`grouped_reducescatter`, with the arguments of :func:`reducescatter_async`."""


# -- without tensors --------------------------------------------------------------------------------------------------
def join(device: int = -1) -> int:  # noqa: ARG001
    """Have no more data: wait until all ranks have joined, and give the rank that joined last, the same everywhere.

    Meanwhile this rank takes part in the others' allreduces with zeros; an Average still divides by all ranks. Other
    collectives raise until all have joined. ``device`` is Horovod's and has no meaning here.
    """
    return horovod.join()


def poll(handle: Handle) -> bool:
    """Whether an asynchronous operation has finished, so that :func:`synchronize` will not block."""
    return _checked(handle).done()


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous operation; gives its tensor, or what its blocking form gives."""
    return _checked(handle).wait()


def _checked(handle: object) -> Handle:
    if not isinstance(handle, Handle):
        raise ArgumentsError(f"{handle!r} is no handle: expected what an …_async function gave")
    return handle
