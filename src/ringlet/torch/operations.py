"""Collectives over tensors as they are submitted, how their arrays become tensors again, and their gradients.

Gradients follow Horovod's conventions; every rank has a loss of its own. allreduce: the gradients of all ranks, reduced
the same way (minimum, maximum: to the ranks that gave it; product: times the others' values). allgather: averaged, then
this rank's slice. broadcast: averaged on the root, zero elsewhere. alltoall: sent back. reducescatter: gathered, times
the number of ranks for a sum. A backward pass is collective like the forward pass: every rank must run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function

from ringlet.comm.contract import Array
from ringlet.named import ArgumentsError, Handle, NamedCollectives, ProcessSet, Reduction, Submission, session
from ringlet.named.horovod import Scaling
from ringlet.named.kinds import kind_of
from ringlet.torch.tensors import check_tensor, from_array, shares_memory, store, to_array

Splits = Tensor | Sequence[int] | None
_AVERAGE = Scaling()


@final
@dataclass(slots=True)
class TensorCollective:
    """A collective over tensors that can be started, or done at once."""

    collectives: NamedCollectives
    process_set: ProcessSet | None
    submission: Submission
    tensors: Sequence[Tensor]
    how: Scaling
    convert: Callable[[list[Array]], Any]

    def start(self) -> Handle:
        """In the background."""
        return self.collectives.submit(self.submission, convert=self.convert)

    def start_single(self) -> Handle:
        """In the background, for one tensor: the result is that tensor, not a list."""
        convert = self.convert
        return self.collectives.submit(self.submission, convert=lambda arrays: convert(arrays)[0])

    def run(self) -> Any:
        """And wait for the result. Not differentiable."""
        return self.convert(self.collectives.run(self.submission))

    def differentiate(self) -> list[Tensor]:
        """Run; the results have gradients if the tensors need them."""
        if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)):
            return list(self.run())
        return list(_Differentiable.apply(self, *self.tensors))  # type: ignore[no-untyped-call]


def prepare(
    kind: str,
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet | None = None,
    how: Scaling = _AVERAGE,
    *,
    root_rank: int = 0,
    splits: tuple[int, ...] | None = None,
    in_place: bool = False,
) -> TensorCollective:
    """A collective of this kind with one result for each tensor, which is the tensor itself if ``in_place``."""
    collectives = session.collectives(process_set)
    arrays = tuple(to_array(check_tensor(tensor)) for tensor in tensors)
    name = name or collectives.default_name(kind)
    outputs = arrays if in_place else None
    submission = Submission(kind, name, arrays, outputs, how.op, how.prescale, how.postscale, int(root_rank), splits)
    if in_place:
        convert = _written(tensors)
    else:
        convert = _alike(tensors) if kind_of(kind).takes_outputs else _on_devices(tensors)
    return TensorCollective(collectives, process_set, submission, tensors, how, convert)


def allreduce(
    tensors: Sequence[Tensor], how: Scaling, process_set: ProcessSet | None = None, name: str | None = None
) -> list[Tensor]:
    """Combined, one new tensor for each; not differentiable."""
    results: list[Tensor] = prepare("allreduce", tensors, name, process_set, how).run()
    return results


def prepare_alltoall(
    tensor: Tensor, splits: Splits, name: str | None, process_set: ProcessSet | None
) -> TensorCollective:
    """Gives a pair: what came from all ranks, and how many rows from each."""
    numbers = None if splits is None else tuple(int(split) for split in splits)
    splits_dtype = splits.dtype if isinstance(splits, Tensor) else torch.int32
    splits_device = splits.device if isinstance(splits, Tensor) else None

    def convert(results: list[Array]) -> tuple[Tensor, Tensor]:
        rows, received = results
        return from_array(rows, tensor.device), from_array(received).to(dtype=splits_dtype, device=splits_device)

    return replace(prepare("alltoall", [tensor], name, process_set, splits=numbers), convert=convert)


def check_group(tensors: object) -> list[Tensor]:
    """The tensors of a grouped operation."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence) or not tensors:
        raise ArgumentsError("a grouped operation takes a list of at least one tensor")
    return [check_tensor(tensor) for tensor in tensors]


# -- from arrays to tensors -------------------------------------------------------------------------------------------
def _on_devices(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    """New tensors of any shapes where the given ones are."""
    devices = [tensor.device for tensor in tensors]
    return lambda results: [from_array(array, device) for array, device in zip(results, devices, strict=True)]


def _alike(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    """New tensors with the layouts of the given ones."""

    def convert(results: list[Array]) -> list[Tensor]:
        made = []
        for tensor, array in zip(tensors, results, strict=True):
            result = from_array(array)
            made.append(result if shares_memory(tensor) else torch.empty_like(tensor).copy_(result))
        return made

    return convert


def _written(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    """The given tensors, with the results in them."""

    def convert(results: list[Array]) -> list[Tensor]:
        for tensor, array in zip(tensors, results, strict=True):
            store(tensor, array)
        return list(tensors)

    return convert


# -- gradients --------------------------------------------------------------------------------------------------------
class _Differentiable(Function):
    """Any kind of collective; what is special about it is in ``_KEEP`` and ``_GRADIENTS``."""

    @staticmethod
    def forward(ctx: Any, call: TensorCollective, *tensors: Tensor) -> Any:
        results = call.run()
        submission = call.submission
        ctx.kind, ctx.how, ctx.root, ctx.process_set = submission.kind, call.how, submission.root, call.process_set
        ctx.name = f"gradient of {submission.name}"  # so the order of backward passes may differ between ranks
        if submission.kind in _KEEP:
            _KEEP[submission.kind](ctx, tensors, results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *_GRADIENTS[ctx.kind](ctx, gradients)


def _reduced(ctx: Any, gradients: Sequence[Tensor], how: Scaling) -> list[Tensor]:
    return prepare("allreduce", gradients, ctx.name, ctx.process_set, how).differentiate()


def _keep_allreduce(ctx: Any, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    if ctx.how.op in (Reduction.MIN, Reduction.MAX):
        ctx.save_for_backward(*tensors, *results)
    elif ctx.how.op is Reduction.PRODUCT:
        ctx.save_for_backward(*tensors)


def _allreduce_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    if ctx.how.op is Reduction.PRODUCT:
        return _product_gradients(ctx, gradients)
    if ctx.how.op in (Reduction.MIN, Reduction.MAX):
        return _extreme_gradients(ctx, gradients)
    return _reduced(ctx, gradients, ctx.how)


def _extreme_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    """To the elements that were the smallest or largest, in equal parts where several were."""
    inputs, results = ctx.saved_tensors[: len(gradients)], ctx.saved_tensors[len(gradients) :]
    chosen = []
    for value, result in zip(inputs, results, strict=True):
        chosen.append((value * ctx.how.prescale * ctx.how.postscale == result).to(result.dtype))
    summed = _reduced(ctx, [*gradients, *chosen], Scaling(Reduction.SUM))
    totals, counts = summed[: len(gradients)], summed[len(gradients) :]
    factor = ctx.how.prescale * ctx.how.postscale
    return [
        factor * mark * total / count.clamp(min=1) for mark, total, count in zip(chosen, totals, counts, strict=True)
    ]


def _product_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Times the product of the other ranks' values, which are gathered: a quotient would fail at zeros."""
    rows = [value.unsqueeze(0) for value in (*gradients, *ctx.saved_tensors)]
    call = prepare("allgather", rows, ctx.name, ctx.process_set)
    gathered, rank, size = call.differentiate(), call.collectives.rank, call.collectives.size
    totals, values = gathered[: len(gradients)], gathered[len(gradients) :]
    others = [other for other in range(size) if other != rank]
    factor = ctx.how.postscale * ctx.how.prescale**size
    return [factor * total.sum(0) * value[others].prod(0) for total, value in zip(totals, values, strict=True)]


def _keep_allgather(ctx: Any, tensors: Sequence[Tensor], _: Sequence[Tensor]) -> None:
    ctx.lengths = [len(tensor) for tensor in tensors]


def _allgather_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    call = prepare("allgather", [torch.tensor([ctx.lengths])], f"lengths for {ctx.name}", ctx.process_set)
    lengths = call.start_single()
    averages = _reduced(ctx, gradients, _AVERAGE)
    before = lengths.wait()[: call.collectives.rank].sum(0).tolist()
    slices = zip(averages, before, ctx.lengths, strict=True)
    return [average.narrow(0, start, length) for average, start, length in slices]


def _broadcast_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    averages = _reduced(ctx, gradients, _AVERAGE)
    collectives = session.collectives(ctx.process_set)
    is_root = collectives.ranks[collectives.rank] == ctx.root
    return averages if is_root else [torch.zeros_like(average) for average in averages]


def _keep_alltoall(ctx: Any, _: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    ctx.received = results[1]
    ctx.mark_non_differentiable(ctx.received)


def _alltoall_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    return prepare_alltoall(gradients[0], ctx.received, ctx.name, ctx.process_set).differentiate()[:1]


def _reducescatter_gradients(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    size = session.collectives(ctx.process_set).size
    factor = ctx.how.prescale * ctx.how.postscale * (size if ctx.how.op is Reduction.SUM else 1)
    scaled = [gradient * factor for gradient in gradients] if factor != 1 else gradients
    return prepare("allgather", scaled, ctx.name, ctx.process_set).differentiate()


_KEEP = {"allreduce": _keep_allreduce, "allgather": _keep_allgather, "alltoall": _keep_alltoall}
_GRADIENTS = {
    "allreduce": _allreduce_gradients,
    "allgather": _allgather_gradients,
    "broadcast": _broadcast_gradients,
    "alltoall": _alltoall_gradients,
    "reducescatter": _reducescatter_gradients,
}
