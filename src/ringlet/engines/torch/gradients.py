"""The way of the gradients out of PyTorch's backward pass into the flat buffer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Protocol, final

import torch
from torch import Tensor

from ringlet.engines.contract import FlatTensors, OnReady
from ringlet.engines.torch.memory import as_tensors
from ringlet.models.spec import ModelSpec


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
        self._on_ready: OnReady | None = None
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._take, index))  # type: ignore[no-untyped-call]

    def compute(self, loss: Tensor, scale: float, on_ready: OnReady | None) -> None:
        """See :class:`Gradients`."""
        self._missing, self._on_ready = self._counts.copy(), on_ready
        try:
            if loss.requires_grad:
                (loss * scale).backward()  # type: ignore[no-untyped-call]  # a factor as argument makes it import SymPy
        finally:
            self._on_ready = None
        self._fill_rest(on_ready)

    def _take(self, index: int, parameter: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None, "the hook runs behind the accumulation"
        self._targets[index].copy_(gradient)
        parameter.grad = None
        group = self._groups[index]
        self._missing[group] -= 1
        if self._missing[group] == 0 and self._on_ready is not None:
            self._on_ready(*self._ranges[group])

    def _fill_rest(self, on_ready: OnReady | None) -> None:
        """What the loss does not depend on has zeros."""
        for group in [group for group, missing in enumerate(self._missing) if missing]:
            for index, target in enumerate(self._targets):
                if self._groups[index] == group:
                    target.zero_()
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
            found = torch.autograd.grad(loss * scale, self._parameters, materialize_grads=True, allow_unused=True)
            self._host.copy_(torch.cat([gradient.flatten() for gradient in found]))
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
