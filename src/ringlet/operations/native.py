"""How operations speak to the native engine: symbolic tensors and calls, and the emitter that collects them.

A node of a plan says what it needs and emits its kernel calls, forward and backward. Gradients are handed out
copy-on-write. A gradient that several values share (both inputs of an addition have the output's gradient) is
overwritten or added to only when no other value still waits to read it; otherwise the writer gets a buffer of its own.
So sharing is always safe, and free where the order of the calls allows it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringlet.kernels.contract import RELU, Floats, Pair
from ringlet.operations.attributes import Shape

if TYPE_CHECKING:
    from ringlet.operations.base import Operation

View = tuple[str, int]
"""An input and the element of the output at which it begins."""


@dataclass(eq=False, slots=True)
class Storage:
    """A piece of memory whose place in the arena is decided last."""

    label: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A contiguous array inside a storage; ``offset`` in bytes."""

    storage: Storage
    offset: int
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        """Size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def reshape(self, shape: Shape) -> Tensor:
        """The same bytes as another shape."""
        return Tensor(self.storage, self.offset, shape, self.dtype)

    def slice_of(self, offset: int, shape: Shape) -> Tensor:
        """A contiguous part that begins ``offset`` bytes later."""
        return Tensor(self.storage, self.offset + offset, shape, self.dtype)

    def overlaps(self, other: Tensor) -> bool:
        """Whether the two share bytes."""
        return (
            self.storage is other.storage
            and self.offset < other.offset + other.num_bytes
            and other.offset < self.offset + self.num_bytes
        )


def new_tensor(label: str, shape: Shape, dtype: np.dtype[Any]) -> Tensor:
    """A tensor that fills a storage of its own."""
    return Tensor(Storage(label, math.prod(shape) * dtype.itemsize), 0, shape, dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel call on symbolic tensors and on arrays that outlive the plan (parameters, gradients, state)."""

    kernel: str
    arguments: tuple[object, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Emitter:
    """What nodes see while they emit their calls."""

    dtype: np.dtype[Any]
    """Of activations."""
    values: Mapping[str, Tensor]
    parameters: Mapping[str, Floats]
    gradients: Mapping[str, Floats]
    state: Mapping[str, Floats]
    trainable: frozenset[str]
    """Values that depend on a parameter: only their gradients are computed."""
    consumed_once: frozenset[str] = frozenset()
    """Results of a ReLU with a single consumer, which may take its gradient back through that ReLU at once."""
    rectified: set[str] = field(default_factory=set)
    """Those of them whose consumer has done so."""
    bias_gradients: Mapping[str, Floats] = field(default_factory=dict)
    """By values with a single consumer, which may sum up what it gives back: where the sums of channels belong."""
    summed: set[str] = field(default_factory=set)
    """Those of them whose consumer has done so."""
    calls: list[Call] = field(default_factory=list)
    _pending: dict[str, Tensor] = field(default_factory=dict)
    _saved: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    def call(self, kernel: str, /, *arguments: object, **options: Any) -> None:
        """Append a kernel call."""
        self.calls.append(Call(kernel, arguments, options))

    def saved(self, output: str, role: str, shape: Shape, dtype: np.dtype[Any]) -> Tensor:
        """A tensor that a node keeps from its forward to its backward pass."""
        key = (output, role)
        if key not in self._saved:
            self._saved[key] = new_tensor(f"{output}.{role}", shape, dtype)
        return self._saved[key]

    # -- gradients of values ------------------------------------------------------------------------------------------
    def has_gradient(self, value: str) -> bool:
        """Whether some consumer has already contributed to the gradient of ``value``."""
        return value in self._pending

    def gradient(self, value: str) -> Tensor:
        """The complete gradient of a node's output, to be read."""
        return self._pending[value]

    def writable_gradient(self, value: str) -> Tensor:
        """Memory for a changed gradient of ``value``: its own if no one else waits for it, else new."""
        gradient = self._pending[value]
        return gradient if self._is_exclusive(value) else self.like(value)

    def target(self, value: str, *, reuse: str | None = None) -> tuple[Tensor, bool] | None:
        """Where to write a contribution to the gradient of ``value``, and whether to add to what is there.

        None if no one needs it. With ``reuse`` the first contribution may overwrite the gradient of that value, which
        the same kernel reads element by element.
        """
        if value not in self.trainable:
            return None
        if value not in self._pending:
            self._pending[value] = self._first_target(value, reuse)
            return self._pending[value], False
        if not self._is_exclusive(value):
            copy = self.like(value)
            self.call("copy", copy, self._pending[value])
            self._pending[value] = copy
        return self._pending[value], True

    def contribute(self, value: str, contribution: Tensor) -> None:
        """Add a finished tensor to the gradient of ``value``; the first one is taken as it is, without a copy."""
        if value not in self.trainable:
            return
        if value not in self._pending:
            self._pending[value] = contribution
            return
        total = self.writable_gradient(value)
        self.call("add", self._pending[value], contribution, total)
        self._pending[value] = total

    def discard(self, value: str) -> None:
        """Forget a gradient that has been read for the last time."""
        self._pending.pop(value, None)

    def like(self, value: str) -> Tensor:
        """A tensor as large as ``value`` that no one else uses."""
        return new_tensor(f"d {value}", self.values[value].shape, self.dtype)

    def _first_target(self, value: str, reuse: str | None) -> Tensor:
        if reuse is not None and self._is_exclusive(reuse):
            return self._pending[reuse].reshape(self.values[value].shape)
        return self.like(value)

    def _is_exclusive(self, value: str) -> bool:
        own = self._pending[value]
        return not any(own.overlaps(other) for name, other in self._pending.items() if name != value)


@dataclass(frozen=True)
class FusedNode:
    """A node of a spec together with the ReLU that is applied to its result."""

    name: str
    operation: Operation
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    """Names of the values it reads."""
    output: str
    """The value it produces: its own name, or that of the ReLU."""
    relu: bool
    index: int
    """Position of the node in the spec: names its random stream."""


@dataclass(frozen=True)
class Needs:
    """What must outlive the forward pass, and which inputs the output may overwrite."""

    input_in_backward: bool = False
    output_in_backward: bool = False
    overwritable: tuple[str, ...] = ()


class NativeNode(ABC):
    """One fused node of a plan; ``shapes`` of all values include the lanes."""

    def __init__(self, fused: FusedNode, shapes: Mapping[str, Shape], *, training: bool) -> None:
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
        """Inputs that are parts of the output unchanged; empty if the node computes."""

    @abstractmethod
    def forward(self, emit: Emitter) -> None:
        """Emit the calls that produce the output."""

    @abstractmethod
    def backward(self, emit: Emitter) -> None:
        """Emit the calls that turn the output's gradient into those of inputs and parameters."""

    # -- shared by the nodes ------------------------------------------------------------------------------------------
    def attribute(self, name: str) -> Any:
        """An attribute of the node."""
        return self.fused.attributes[name]

    def pair(self, name: str) -> Pair:
        """A (vertical, horizontal) attribute."""
        first, second = cast("tuple[int, int]", self.attribute(name))
        return int(first), int(second)

    def parameter(self, emit: Emitter, role: str) -> Floats:
        """A parameter of the node."""
        return emit.parameters[f"{self.fused.name}.{role}"]

    def parameter_gradient(self, emit: Emitter, role: str) -> Floats:
        """Where the gradient of a parameter goes."""
        return emit.gradients[f"{self.fused.name}.{role}"]

    def emit_views(self, emit: Emitter) -> None:
        """Copy the inputs that could not be placed inside the output; the others already lie there."""
        output = emit.values[self.output]
        for name, offset in self.views():
            source = emit.values[name]
            part = output.slice_of(offset * output.dtype.itemsize, source.shape)
            if (part.storage, part.offset) != (source.storage, source.offset):
                emit.call("copy", part, source)


class ComputingNode(NativeNode):
    """A node none of whose inputs is part of its output."""

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()


class WeightedNode(ComputingNode):
    """A node with a weight, a bias it may have, and a ReLU on top if fused."""

    def needs(self) -> Needs:
        """The weight gradient reads x; the fused ReLU's mask reads y."""
        return Needs(input_in_backward=True, output_in_backward=self.relu)

    def bias(self, emit: Emitter) -> Floats | None:
        """The bias, if the node has one."""
        return emit.parameters.get(f"{self.fused.name}.bias")

    def emit_bias_gradient(self, emit: Emitter, dy: Tensor) -> None:
        """Sum up what arrives at the bias, unless the reader of the output has done so."""
        if self.bias(emit) is not None and self.output not in emit.summed:
            emit.call("bias_backward", dy, self.parameter_gradient(emit, "bias"))

    def before_relu(self, emit: Emitter) -> Tensor:
        """The output's gradient, taken back through the ReLU that the node absorbed."""
        gradient = emit.gradient(self.output)
        if not self.relu or self.output in emit.rectified:
            return gradient
        masked = emit.writable_gradient(self.output)
        emit.call("activation_backward", RELU, emit.values[self.output], gradient, masked, accumulate=False)
        return masked
