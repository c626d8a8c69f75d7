"""Collectives over tensors as they are submitted: a request to an engine, and how its arrays become tensors again.

Nothing here is differentiable; ``collectives`` has the public functions, ``autograd`` their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from ringlet.comm.contract import Array
from ringlet.named import ArgumentsError, Engine, ProcessSet, Reduction, Request, session
from ringlet.torch.handles import Handle
from ringlet.torch.tensors import check_tensor, from_array, shares_memory, to_array

Splits = Tensor | Sequence[int] | None


@final
@dataclass(frozen=True)
class Operation:
    """Something that can be started, or done at once."""

    engine: Engine
    request: Request
    finish: Callable[[list[Array]], Any]

    def start(self) -> Handle:
        """In the background."""
        finish = self.finish
        return Handle([self.engine.submit(self.request)], lambda results: finish(results[0]))

    def run(self) -> Any:
        """And wait for the result."""
        return self.finish(self.engine.run(self.request))


@dataclass(frozen=True)
class Scaling:
    """How an allreduce or reducescatter combines."""

    op: Reduction = Reduction.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0


def allreduce(
    tensors: Sequence[Tensor], name: str | None, how: Scaling, process_set: ProcessSet | None, *, in_place: bool = False
) -> Operation:
    """One result for each tensor: a new one, or the tensor itself if ``in_place``."""
    engine = session.engine(process_set)
    arrays = _arrays(tensors)
    request = Request(
        "allreduce",
        name or engine.default_name("allreduce"),
        arrays,
        arrays if in_place else None,
        how.op,
        how.prescale,
        how.postscale,
    )
    return Operation(engine, request, _finish_in_place(tensors) if in_place else _finish_alike(tensors))


def broadcast(
    tensors: Sequence[Tensor], root_rank: int, name: str | None, process_set: ProcessSet | None, *, in_place: bool
) -> Operation:
    """One result for each tensor, as :func:`allreduce`."""
    engine = session.engine(process_set)
    arrays = _arrays(tensors)
    name = name or engine.default_name("broadcast")
    request = Request("broadcast", name, arrays, arrays if in_place else None, root=int(root_rank))
    return Operation(engine, request, _finish_in_place(tensors) if in_place else _finish_alike(tensors))


def allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet | None) -> Operation:
    """For each tensor those of all ranks, one after the other along dimension 0."""
    engine = session.engine(process_set)
    request = Request("allgather", name or engine.default_name("allgather"), _arrays(tensors))
    return Operation(engine, request, _finish_new(tensors))


def reducescatter(
    tensors: Sequence[Tensor], name: str | None, how: Scaling, process_set: ProcessSet | None
) -> Operation:
    """For each tensor this rank's part of dimension 0 of the combined ones."""
    engine = session.engine(process_set)
    name = name or engine.default_name("reducescatter")
    request = Request("reducescatter", name, _arrays(tensors), None, how.op, how.prescale, how.postscale)
    return Operation(engine, request, _finish_new(tensors))


def alltoall(tensor: Tensor, splits: Splits, name: str | None, process_set: ProcessSet | None) -> Operation:
    """A pair: what came from all ranks, and how many rows from each."""
    engine = session.engine(process_set)
    numbers = None if splits is None else tuple(int(split) for split in splits)
    request = Request("alltoall", name or engine.default_name("alltoall"), _arrays([tensor]), splits=numbers)
    splits_dtype = splits.dtype if isinstance(splits, Tensor) else torch.int32
    splits_device = splits.device if isinstance(splits, Tensor) else None

    def finish(results: list[Array]) -> tuple[Tensor, Tensor]:
        rows, received = results
        return from_array(rows, tensor.device), from_array(received).to(dtype=splits_dtype, device=splits_device)

    return Operation(engine, request, finish)


def check_group(tensors: object) -> list[Tensor]:
    """The tensors of a grouped operation."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence) or not tensors:
        raise ArgumentsError("a grouped operation takes a list of at least one tensor")
    return [check_tensor(tensor) for tensor in tensors]


def _arrays(tensors: Sequence[Tensor]) -> tuple[Array, ...]:
    return tuple(to_array(check_tensor(tensor)) for tensor in tensors)


def _finish_new(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    devices = [tensor.device for tensor in tensors]
    return lambda results: [from_array(array, device) for array, device in zip(results, devices, strict=True)]


def _finish_alike(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    """New tensors with the layouts of the given ones."""

    def finish(results: list[Array]) -> list[Tensor]:
        made = []
        for tensor, array in zip(tensors, results, strict=True):
            result = from_array(array)
            made.append(result if shares_memory(tensor) else torch.empty_like(tensor).copy_(result))
        return made

    return finish


def _finish_in_place(tensors: Sequence[Tensor]) -> Callable[[list[Array]], list[Tensor]]:
    def finish(results: list[Array]) -> list[Tensor]:
        for tensor, array in zip(tensors, results, strict=True):
            if not shares_memory(tensor):
                tensor.detach().copy_(from_array(array))
            elif not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)  # autograd notices that values changed
        return list(tensors)

    return finish
