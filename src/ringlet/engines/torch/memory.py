"""Where the tensors of a replica live: on the processor they are views of the flat buffers, on a GPU copies of them."""

from __future__ import annotations

from typing import Protocol, final

import torch
from torch import Tensor

from ringlet.engines.contract import FlatTensors


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
    """One flat copy of each buffer on the device, moved as a whole: twice before a pass, once behind it."""

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
