"""Where the tensors of a replica live, and how its gradients get out: on the processor, or on a GPU of the machine.

On the processor tensors are views of the flat buffers; a GPU has copies of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Protocol, final

import torch
from torch import Tensor

from ringlet.engines.contract import FlatTensors, OnReady
from ringlet.models.spec import ModelSpec


def visible_gpus() -> list[str]:
    """A name for each, in the order of PyTorch's numbers; the same GPU has the same name in every process."""
    if not torch.cuda.is_available():
        return []
    return [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]


def take_gpu(index: int) -> str:
    """Make a GPU this process's own; gives PyTorch's name of it."""
    torch.cuda.set_device(index)
    return f"cuda:{index}"


# -- parameters and state ----------------------------------------------------------------------------------------------
class Memory(Protocol):
    """Parameters (leaves of the graph) and running statistics as tensors, in the order of the spec."""

    parameters: list[Tensor]
    state: list[Tensor]

    def fetch(self) -> None:
        """Take over what the flat buffers hold: others may have changed them."""

    def keep_state(self) -> None:
        """Bring the running statistics of a training pass into their flat buffer."""


def make_memory(parameters: FlatTensors, state: FlatTensors, device: torch.device) -> Memory:
    """The memory for passes on ``device``."""
    return HostMemory(parameters, state) if device.type == "cpu" else DeviceMemory(parameters, state, device)


def as_tensors(flat: FlatTensors) -> list[Tensor]:
    """Tensors that share the memory of the views."""
    return [torch.from_numpy(view) for view in flat.views.values()]


@final
class HostMemory:
    """No copies: what an optimizer or another rank writes into the flat buffer is what the next pass reads."""

    def __init__(self, parameters: FlatTensors, state: FlatTensors) -> None:
        self.parameters = [tensor.requires_grad_() for tensor in as_tensors(parameters)]
        self.state = as_tensors(state)

    def fetch(self) -> None:
        """Nothing to do."""

    def keep_state(self) -> None:
        """Nothing to do."""


@final
class DeviceMemory:
    """One flat copy of each buffer on the device, moved as a whole: twice before a pass, once after it."""

    def __init__(self, parameters: FlatTensors, state: FlatTensors, device: torch.device) -> None:
        self._hosts = [torch.from_numpy(flat.flat) for flat in (parameters, state)]
        self._copies = [torch.empty_like(host, device=device) for host in self._hosts]
        self.parameters = [part.requires_grad_() for part in _parts(self._copies[0], parameters)]
        self.state = _parts(self._copies[1], state)

    def fetch(self) -> None:
        """Copy both buffers to the device."""
        for copy, host in zip(self._copies, self._hosts, strict=True):
            copy.copy_(host)

    def keep_state(self) -> None:
        """Copy the statistics back."""
        self._hosts[1].copy_(self._copies[1])


def _parts(copy: Tensor, like: FlatTensors) -> list[Tensor]:
    """Pieces of a flat copy; detached, so that each is a leaf of its own."""
    sizes = [view.size for view in like.views.values()]
    pieces = torch.split(copy, sizes) if sizes else ()
    return [piece.view(view.shape).detach() for piece, view in zip(pieces, like.views.values(), strict=True)]


# -- gradients ---------------------------------------------------------------------------------------------------------
class Gradients(Protocol):
    """Runs a backward pass and fills the flat gradients."""

    def compute(self, loss: Tensor, scale: float, on_ready: OnReady | None) -> None:
        """``scale`` times the gradients of ``loss``; ``on_ready``: see :class:`ringlet.engines.contract.Replica`."""


def make_gradients(spec: ModelSpec, parameters: Sequence[Tensor], flat: FlatTensors, device: torch.device) -> Gradients:
    """The way from parameters on ``device``."""
    kind = HostGradients if device.type == "cpu" else DeviceGradients
    return kind(spec, parameters, flat)


@final
class HostGradients:
    """Copies each gradient as soon as it is there, by a hook of its parameter, in the thread of the backward pass.

    The tensors of a node lie side by side and become final together, so they are reported as one range.
    """

    def __init__(self, spec: ModelSpec, parameters: Sequence[Tensor], flat: FlatTensors) -> None:
        self._targets = as_tensors(flat)
        self._ranges, self._counts, self._groups = _node_ranges(spec)
        self._missing: list[int] = []
        self._untouched: set[int] = set()
        """Parameters whose gradient has not come in this pass."""
        self._on_ready: OnReady | None = None
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._take, index))  # type: ignore[no-untyped-call]

    def compute(self, loss: Tensor, scale: float, on_ready: OnReady | None) -> None:
        """See :class:`Gradients`."""
        self._missing, self._on_ready = self._counts.copy(), on_ready
        self._untouched = set(range(len(self._targets)))
        try:
            if loss.requires_grad:
                (loss * scale).backward()  # type: ignore[no-untyped-call]  # a factor as argument makes it import SymPy
        finally:
            self._on_ready = None
        self._fill_rest(on_ready)

    def _take(self, index: int, parameter: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None, "the hook runs after the accumulation"
        self._targets[index].copy_(gradient)
        parameter.grad = None
        self._untouched.discard(index)
        group = self._groups[index]
        self._missing[group] -= 1
        if self._missing[group] == 0 and self._on_ready is not None:
            self._on_ready(*self._ranges[group])

    def _fill_rest(self, on_ready: OnReady | None) -> None:
        """What the loss does not depend on, and what is frozen, has zeros."""
        for index in self._untouched:
            self._targets[index].zero_()
        for group in [group for group, missing in enumerate(self._missing) if missing]:
            if on_ready is not None:
                on_ready(*self._ranges[group])


@final
class DeviceGradients:
    """Moves all gradients to the processor in one copy when the pass is over."""

    def __init__(self, spec: ModelSpec, parameters: Sequence[Tensor], flat: FlatTensors) -> None:
        self._parameters = list(parameters)
        self._host = torch.from_numpy(flat.flat)
        self._sizes = [info.size for info in spec.parameters]

    def compute(self, loss: Tensor, scale: float, on_ready: OnReady | None) -> None:
        """See :class:`Gradients`."""
        if loss.requires_grad:
            learning = [own for own in self._parameters if own.requires_grad]
            found = iter(torch.autograd.grad(loss * scale, learning, materialize_grads=True, allow_unused=True))
            whole = [next(found) if own.requires_grad else torch.zeros_like(own) for own in self._parameters]
            self._host.copy_(torch.cat([gradient.flatten() for gradient in whole]))
        if on_ready is not None:
            on_ready(0, self._host.numel())


def _node_ranges(spec: ModelSpec) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """For each node with parameters its range and their number; and for each parameter the place of its node."""
    ranges: list[tuple[int, int]] = []
    counts: list[int] = []
    groups: list[int] = []
    start = 0
    for _, infos in groupby(spec.parameters, lambda info: info.node):
        sizes = [info.size for info in infos]
        groups += [len(ranges)] * len(sizes)
        ranges.append((start, start + sum(sizes)))
        counts.append(len(sizes))
        start += sum(sizes)
    return ranges, counts, groups
