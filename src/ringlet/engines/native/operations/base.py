"""What an operation tells the plan (which buffers it needs when) and does for it (emit its kernel calls)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ringlet.engines.contract import Floats
from ringlet.engines.native.buffers import Shape, Tensor
from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.fusion import FusedNode
from ringlet.kernels.contract import Pair

Shapes = Mapping[str, Shape]
"""Shape of every value, lanes included."""

View = tuple[str, int]
"""An input and the element of the output at which it begins."""


@dataclass(frozen=True)
class Needs:
    """What must outlive the forward pass, and which inputs the output may overwrite."""

    input_in_backward: bool = False
    output_in_backward: bool = False
    overwritable: tuple[str, ...] = ()


class Operation(ABC):
    """One fused node of a plan."""

    def __init__(self, fused: FusedNode, shapes: Shapes, *, training: bool) -> None:
        self.fused = fused
        self.training = training
        self.shapes = shapes
        self.output = fused.output
        self.inputs = fused.inputs
        self.relu = fused.relu

    @abstractmethod
    def needs(self) -> Needs:
        """Buffers that the passes rely on."""

    @abstractmethod
    def views(self) -> tuple[View, ...]:
        """Inputs that are parts of the output unchanged; empty if the operation computes."""

    @abstractmethod
    def forward(self, emit: Emitter) -> None:
        """Emit the calls that produce the output."""

    @abstractmethod
    def backward(self, emit: Emitter) -> None:
        """Emit the calls that turn the output's gradient into those of inputs and parameters."""

    # -- shared by the operations -------------------------------------------------------------------------------------
    def attribute(self, name: str) -> Any:
        """An attribute of the node."""
        return self.fused.node.attributes[name]

    def pair(self, name: str) -> Pair:
        """A (vertical, horizontal) attribute."""
        first, second = cast("tuple[int, int]", self.attribute(name))
        return int(first), int(second)

    def parameter(self, emit: Emitter, role: str) -> Floats:
        """A parameter of the node."""
        return emit.parameters[f"{self.fused.node.name}.{role}"]

    def parameter_gradient(self, emit: Emitter, role: str) -> Floats:
        """Where the gradient of a parameter goes."""
        return emit.gradients[f"{self.fused.node.name}.{role}"]

    def bias(self, emit: Emitter) -> Floats | None:
        """The bias, if the node has one."""
        return emit.parameters.get(f"{self.fused.node.name}.bias")

    def emit_bias_gradient(self, emit: Emitter, dy: Tensor) -> None:
        """Sum up what arrives at the bias, unless whoever reads the output has done so."""
        if self.bias(emit) is not None and self.output not in emit.summed:
            emit.call("bias_backward", dy, self.parameter_gradient(emit, "bias"))

    def before_relu(self, emit: Emitter) -> Tensor:
        """The output's gradient, taken back through the ReLU that the operation absorbed."""
        gradient = emit.gradient(self.output)
        if not self.relu or self.output in emit.rectified:
            return gradient
        masked = emit.writable_gradient(self.output)
        emit.call(
            "activation_backward", "relu", emit.values[self.output], gradient, masked, slope=0.0, accumulate=False
        )
        return masked


def emit_views(operation: Operation, emit: Emitter) -> None:
    """Copy the inputs that could not be placed inside the output; the others already lie there."""
    output = emit.values[operation.output]
    for name, offset in operation.views():
        source = emit.values[name]
        part = output.slice_of(offset * output.dtype.itemsize, source.shape)
        if (part.storage, part.offset) != (source.storage, source.offset):
            emit.call("copy", part, source)
