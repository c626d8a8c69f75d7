"""The state of one rank for all: parameters, optimizer state, any object, and files. Every rank must call. No pickle.

Files are safetensors with an outline of the object, written and read by the lowest rank. A file is there completely or
not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from ringlet.comm.contract import Array
from ringlet.errors import CheckpointError, RingletError, UsageError
from ringlet.io.disk import replacing
from ringlet.named import ArgumentsError, ProcessSet, session
from ringlet.named.session import global_process_set
from ringlet.torch.objects import blank_tensors, join, split
from ringlet.torch.operations import prepare
from ringlet.torch.optimizer_class import base_class, local_step
from ringlet.torch.tensors import to_array

PathName = str | os.PathLike[str]
Parameters = Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]]

_OUTLINE = "ringlet.outline"
_FRESH_AFTER_ZERO_STEP = (
    torch.optim.Adadelta,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
)
"""Optimizers whose state after a step with zero gradients, with the count set back, is that of no step at all."""


def broadcast_parameters(params: Parameters, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite parameters by those of ``root_rank``, in place.

    ``params`` is a dictionary (``model.state_dict()``), or parameters with or without names (``model.parameters()``,
    ``model.named_parameters()``). All ranks must have the same, of the same shapes.
    """
    tensors = _tensors(params)
    if tensors:
        prepare("broadcast", tensors, None, process_set, root_rank=root_rank, in_place=True).run()


def _tensors(params: object) -> list[Tensor]:
    if isinstance(params, Mapping):
        entries: list[Any] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, Tensor | str):
        entries = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ArgumentsError(
            f"parameters of type {type(params).__qualname__}: expected model.state_dict(), a list of tensors or of "
            "(name, tensor)"
        )
    for name, value in entries:
        if not isinstance(value, Tensor):
            raise ArgumentsError(
                f"'{name}' among the parameters is of type {type(value).__qualname__}: expected tensors; use "
                "broadcast_object for other values"
            )
    return [value.data for _, value in entries]


# -- objects ----------------------------------------------------------------------------------------------------------
def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The object of ``root_rank``: numbers, texts, tensors, arrays, and lists, tuples, sets and dictionaries of them.

    The root gets the object itself back, the others a new one; tensors arrive on the CPU.
    """
    collectives = session.collectives(process_set)
    name = name or collectives.default_name("broadcast_object")
    problem, outline = "", None
    tensors: list[Tensor] = []
    is_root = collectives.ranks[collectives.rank] == root_rank
    if is_root:
        try:
            outline, tensors = split(obj)
        except UsageError as error:
            problem = str(error)
    document = session.broadcast_object([problem, outline], root_rank, f"outline of {name}", process_set)
    problem, outline = document
    if problem:
        raise ArgumentsError(f"rank {root_rank} cannot broadcast its object: {problem}")
    if not is_root:
        tensors = blank_tensors(outline)
    if tensors:
        prepare("broadcast", tensors, name, process_set, root_rank=root_rank, in_place=not is_root).run()
    return obj if is_root else join(outline, tensors)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in the order of ranks; what they may be: see :func:`broadcast_object`."""
    collectives = session.collectives(process_set)
    name = name or collectives.default_name("allgather_object")
    problem, outline = "", None
    tensors: list[Tensor] = []
    try:
        outline, tensors = split(obj)
    except UsageError as error:
        problem = str(error)
    documents = session.allgather_object([problem, outline], f"outline of {name}", process_set)
    for rank, (problem, _) in zip(collectives.ranks, documents, strict=True):
        if problem:
            raise ArgumentsError(f"rank {rank} cannot let its object be gathered: {problem}")
    blanks = [blank_tensors(outline) for _, outline in documents]
    if any(blanks):
        own = [to_array(tensor).reshape(-1).view(np.uint8) for tensor in tensors]
        data = torch.from_numpy(np.concatenate([*own, np.empty(0, np.uint8)]))
        (joined,) = prepare("allgather", [data], name, process_set).run()
        _fill(blanks, to_array(joined))
    return [join(outline, filled) for (_, outline), filled in zip(documents, blanks, strict=True)]


def _fill(blanks: Sequence[Sequence[Tensor]], data: Array) -> None:
    """Tensors take their bytes one after the other."""
    start = 0
    for tensor in (tensor for tensors in blanks for tensor in tensors):
        target = to_array(tensor).reshape(-1).view(np.uint8)
        np.copyto(target, data[start : start + target.size])
        start += target.size


# -- optimizers -------------------------------------------------------------------------------------------------------
def broadcast_optimizer_state(
    optimizer: Optimizer,
    root_rank: int = 0,
    model: torch.nn.Module | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give all ranks the optimizer state and the options of all groups (learning rates, …) of ``root_rank``.

    A state that is empty is made by a step with zero gradients, which changes no parameter and counts as no step;
    parameters without gradients then have zeros.
    Where that would not be neutral (momentum with dampening, optimizers that PyTorch does not bring) it stays empty:
    then the first step makes the same on all ranks. ``model`` is Horovod's and is not needed.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ArgumentsError("the state of LBFGS cannot be broadcast: start it on all ranks from the same parameters")
    if not optimizer.state_dict()["state"] and _is_fresh_after_zero_step(optimizer):
        _make_state(optimizer)
    own = optimizer.state_dict()
    received = broadcast_object(own, root_rank, None, process_set)
    sizes = [
        [len(group["params"]) for group in groups] for groups in (received["param_groups"], optimizer.param_groups)
    ]
    if sizes[0] != sizes[1]:
        raise ArgumentsError(
            f"the optimizer of rank {root_rank} has groups of {sizes[0]} parameters, this one {sizes[1]}: they must "
            "be alike"
        )
    if own is not received:
        optimizer.load_state_dict(received)


def _is_fresh_after_zero_step(optimizer: Optimizer) -> bool:
    dampened = any(group.get("dampening") for group in optimizer.param_groups)
    return base_class(optimizer) in _FRESH_AFTER_ZERO_STEP and not dampened


def _make_state(optimizer: Optimizer) -> None:
    """A step with zero gradients, without decay, after which parameters, gradients and counts are put back.

    Parameters that had no gradients keep zeros, as Horovod leaves them.
    """
    parameters = [
        parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad
    ]
    gradients = [parameter.grad for parameter in parameters]
    values = [parameter.detach().clone() for parameter in parameters]
    decays = [group.get("weight_decay") for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    local_step(optimizer)
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay
    with torch.no_grad():
        for parameter, gradient, value in zip(parameters, gradients, values, strict=True):
            parameter.copy_(value)
            if gradient is not None:
                parameter.grad = gradient
        for state in optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"].zero_()
            elif "step" in state:
                state["step"] = 0


# -- files ------------------------------------------------------------------------------------------------------------
def save(obj: Any, path: PathName, process_set: ProcessSet = global_process_set) -> None:
    """Write an object, usually a dictionary of ``state_dict()``, by the lowest rank alone; every rank must call.

    When it returns the file is there, on all ranks.
    """
    on_first_rank(lambda: write(obj, Path(path)), process_set)


def load(path: PathName, process_set: ProcessSet = global_process_set) -> Any:
    """The object in a file that :func:`save` wrote: read by the lowest rank, given to all. Tensors are on the CPU."""
    return on_first_rank(lambda: read(Path(path)), process_set)


def on_first_rank(work: Callable[[], Any], process_set: ProcessSet = global_process_set) -> Any:
    """What the work gives on the lowest rank, on all ranks; or its error."""
    result, problem = None, ""
    if process_set.rank() == 0:
        try:
            result = work()
        except RingletError as error:
            problem = str(error)
    assert process_set.ranks is not None
    problem, result = broadcast_object([problem, result], process_set.ranks[0], None, process_set)
    if problem:
        raise CheckpointError(problem)
    return result


def write(obj: Any, path: Path) -> None:
    """Write the file in this process: beside its name, flushed to the disk, renamed."""
    outline, tensors = split(obj)
    named = {f"tensor{place}": _plain(tensor) for place, tensor in enumerate(tensors)}
    try:
        with replacing(path) as draft:  # beside its name, flushed to the disk, renamed
            save_file(named, draft, {_OUTLINE: json.dumps(outline)})
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path}: {error}") from None


def read(path: Path) -> Any:
    """Read the file in this process; nothing in it is executed."""
    try:
        with safe_open(path, "pt") as file:
            outline = json.loads((file.metadata() or {})[_OUTLINE])
            tensors = [file.get_tensor(f"tensor{place}") for place in range(len(file.keys()))]
        return join(outline, tensors)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a file that ringlet.torch.save wrote, or damaged: {error!r}") from None


def _plain(tensor: Tensor) -> Tensor:
    """On the CPU, contiguous, in memory of its own: files hold no views."""
    return tensor.detach().to("cpu", copy=True).contiguous(memory_format=torch.contiguous_format)
