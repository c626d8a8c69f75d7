"""Gradients of the collectives, with Horovod's conventions: every rank has a loss of its own.

allreduce: the gradients of all ranks, reduced the same way (minimum, maximum: to the ranks that gave it; product: times
the others' values). allgather: averaged, then this rank's slice. broadcast: averaged on the root, zero elsewhere.
alltoall: sent back. reducescatter: gathered, times the number of ranks for a sum. A backward pass is collective like
the forward pass: every rank must run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from ringlet.named import ProcessSet, Reduction, session
from ringlet.torch import operations
from ringlet.torch.operations import Scaling, Splits
from ringlet.torch.tensors import check_tensor


def allreduce(
    tensors: Sequence[Tensor], name: str | None, how: Scaling, process_set: ProcessSet | None
) -> list[Tensor]:
    """Combined, one for one."""
    if not _needs_gradient(tensors):
        return cast(list[Tensor], operations.allreduce(tensors, name, how, process_set).run())
    return list(_apply(_Allreduce, _named(name, "allreduce", process_set), how, process_set, *tensors))


def allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet | None) -> list[Tensor]:
    """Gathered, one for one."""
    if not _needs_gradient(tensors):
        return cast(list[Tensor], operations.allgather(tensors, name, process_set).run())
    return list(_apply(_Allgather, _named(name, "allgather", process_set), process_set, *tensors))


def broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet | None) -> Tensor:
    """The root's."""
    if not _needs_gradient([tensor]):
        operation = operations.broadcast([tensor], root_rank, name, process_set, in_place=False)
        return cast(list[Tensor], operation.run())[0]
    return cast(Tensor, _apply(_Broadcast, _named(name, "broadcast", process_set), root_rank, process_set, tensor))


def alltoall(tensor: Tensor, splits: Splits, name: str | None, process_set: ProcessSet | None) -> tuple[Tensor, Tensor]:
    """Rows and received splits."""
    if not _needs_gradient([tensor]):
        return cast(tuple[Tensor, Tensor], operations.alltoall(tensor, splits, name, process_set).run())
    pair = _apply(_Alltoall, _named(name, "alltoall", process_set), splits, process_set, tensor)
    return cast(tuple[Tensor, Tensor], pair)


def reducescatter(
    tensors: Sequence[Tensor], name: str | None, how: Scaling, process_set: ProcessSet | None
) -> list[Tensor]:
    """Parts, one for one."""
    if not _needs_gradient(tensors):
        return cast(list[Tensor], operations.reducescatter(tensors, name, how, process_set).run())
    return list(_apply(_Reducescatter, _named(name, "reducescatter", process_set), how, process_set, *tensors))


def _needs_gradient(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(check_tensor(tensor).requires_grad for tensor in tensors)


def _named(name: str | None, kind: str, process_set: ProcessSet | None) -> str:
    return name or session.engine(process_set).default_name(kind)


def _apply(function: type[Function], *arguments: Any) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _backward_name(name: str) -> str:
    """Follows from the forward name, so the order of backward passes may differ between ranks."""
    return f"gradient of {name}"


class _Allreduce(Function):
    @staticmethod
    def forward(ctx: Any, name: str, how: Scaling, process_set: ProcessSet | None, *tensors: Tensor) -> Any:
        ctx.name, ctx.how, ctx.process_set = name, how, process_set
        results = operations.allreduce(tensors, name, how, process_set).run()
        if how.op in (Reduction.MIN, Reduction.MAX):
            ctx.save_for_backward(*tensors, *results)
        elif how.op is Reduction.PRODUCT:
            ctx.save_for_backward(*tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        how, name = ctx.how, _backward_name(ctx.name)
        if how.op in (Reduction.SUM, Reduction.AVERAGE, Reduction.ADASUM):
            results = allreduce(gradients, name, how, ctx.process_set)
        elif how.op is Reduction.PRODUCT:
            results = _product_gradients(gradients, ctx.saved_tensors, name, how, ctx.process_set)
        else:
            results = _extreme_gradients(gradients, ctx.saved_tensors, name, how, ctx.process_set)
        return None, None, None, *results


def _extreme_gradients(
    gradients: Sequence[Tensor], saved: Sequence[Tensor], name: str, how: Scaling, process_set: ProcessSet | None
) -> list[Tensor]:
    """To the elements that were the smallest or largest, in equal parts where several were."""
    inputs, results = saved[: len(gradients)], saved[len(gradients) :]
    chosen = []
    for value, result in zip(inputs, results, strict=True):
        chosen.append((value * how.prescale * how.postscale == result).to(result.dtype))
    summed = allreduce([*gradients, *chosen], name, Scaling(Reduction.SUM), process_set)
    totals, counts = summed[: len(gradients)], summed[len(gradients) :]
    factor = how.prescale * how.postscale
    return [
        factor * mark * total / count.clamp(min=1) for mark, total, count in zip(chosen, totals, counts, strict=True)
    ]


def _product_gradients(
    gradients: Sequence[Tensor], inputs: Sequence[Tensor], name: str, how: Scaling, process_set: ProcessSet | None
) -> list[Tensor]:
    """Times the product of the other ranks' values, which are gathered: a quotient would fail at zeros."""
    engine = session.engine(process_set)
    gathered = allgather([value.unsqueeze(0) for value in (*gradients, *inputs)], name, process_set)
    totals, values = gathered[: len(gradients)], gathered[len(gradients) :]
    others = [rank for rank in range(engine.size) if rank != engine.rank]
    factor = how.postscale * how.prescale**engine.size
    return [factor * total.sum(0) * value[others].prod(0) for total, value in zip(totals, values, strict=True)]


class _Allgather(Function):
    @staticmethod
    def forward(ctx: Any, name: str, process_set: ProcessSet | None, *tensors: Tensor) -> Any:
        ctx.name, ctx.process_set = name, process_set
        results = operations.allgather(tensors, name, process_set).run()
        ctx.lengths = [len(tensor) for tensor in tensors]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        name = _backward_name(ctx.name)
        lengths = operations.allgather([torch.tensor([ctx.lengths])], f"lengths for {name}", ctx.process_set).start()
        averages = allreduce(gradients, name, Scaling(), ctx.process_set)
        before = lengths.wait()[0][: session.engine(ctx.process_set).rank].sum(0).tolist()
        slices = zip(averages, before, ctx.lengths, strict=True)
        return None, None, *[average.narrow(0, start, length) for average, start, length in slices]


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, name: str, root_rank: int, process_set: ProcessSet | None, tensor: Tensor) -> Any:
        ctx.name, ctx.root_rank, ctx.process_set = name, root_rank, process_set
        return operations.broadcast([tensor], root_rank, name, process_set, in_place=False).run()[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (average,) = allreduce([gradient], _backward_name(ctx.name), Scaling(), ctx.process_set)
        engine = session.engine(ctx.process_set)
        is_root = engine.ranks[engine.rank] == ctx.root_rank
        return None, None, None, average if is_root else torch.zeros_like(average)


class _Alltoall(Function):
    @staticmethod
    def forward(ctx: Any, name: str, splits: Splits, process_set: ProcessSet | None, tensor: Tensor) -> Any:
        ctx.name, ctx.process_set = name, process_set
        rows, ctx.received = operations.alltoall(tensor, splits, name, process_set).run()
        ctx.mark_non_differentiable(ctx.received)
        return rows, ctx.received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        rows, _ = alltoall(gradient, ctx.received, _backward_name(ctx.name), ctx.process_set)
        return None, None, None, rows


class _Reducescatter(Function):
    @staticmethod
    def forward(ctx: Any, name: str, how: Scaling, process_set: ProcessSet | None, *tensors: Tensor) -> Any:
        ctx.name, ctx.how, ctx.process_set = name, how, process_set
        return tuple(operations.reducescatter(tensors, name, how, process_set).run())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        size = session.engine(ctx.process_set).size
        factor = ctx.how.prescale * ctx.how.postscale * (size if ctx.how.op is Reduction.SUM else 1)
        scaled = [gradient * factor for gradient in gradients] if factor != 1 else gradients
        return None, None, None, *allgather(scaled, _backward_name(ctx.name), ctx.process_set)
