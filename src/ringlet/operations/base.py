"""What is known of an operation: the contract that networks, engines and exports ask.

A slice (one module of this package) holds one operation or a small family, whole. Nothing else knows operations by
name: a spec asks for shapes, tensors and FLOPs, the native engine for kernel calls, the engines and exports of other
frameworks for an expression, a layer or a node. Frameworks come in through a writer (:mod:`ringlet.operations.writers`)
or stay text, so nothing here imports one.

FLOPs are those of the forward pass of one sample: two per multiply-add for convolutions and dense layers (bias not
counted); for the others one per element touched: pooling counts every element of every window, batch normalisation,
activations and global pooling each input element once, ``add`` each element per addition. Moving data (input, flatten,
concat) and dropout, which vanishes in inference, count zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import SpecError, show
from ringlet.operations.attributes import Check, Shape, by, check_extents, choice, flag
from ringlet.operations.native import NativeNode
from ringlet.operations.writers import KerasWriter, OnnxWriter, OpenVinoWriter, Value

Attributes = Mapping[str, Any]
Shapes = Sequence[Shape]
Role = Literal["weight", "bias", "scale", "shift", "running_mean", "running_var"]

INITIALIZERS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal")
STATE_ROLES = ("running_mean", "running_var")
TRAINED: Mapping[str, Check] = {"bias": flag(), "initializer": choice(INITIALIZERS)}
"""Attributes of every operation with a weight."""


@dataclass(frozen=True)
class TensorRule:
    """A tensor that an operation owns: its role, shape, how it starts and its fans."""

    role: Role
    shape: Shape
    initializer: str
    fan_in: int = 1
    fan_out: int = 1


@dataclass(frozen=True)
class Layer:
    """One use of an operation in a network: what it takes to write it in another framework."""

    name: str
    op: str
    inputs: tuple[str, ...]
    sources: tuple[Shape, ...]
    """Shapes of the inputs, without the batch."""
    shape: Shape
    """Of the output."""
    attributes: Attributes = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    """By role: values in the layout of the specs or, for text, expressions that name them."""
    learns: bool = True
    """Whether training changes its tensors; batch norm that does not uses its running statistics in training too."""


class Operation(ABC):
    """One operation. Attributes of the class are facts; engines and exports decide by them, never by the name."""

    name: str
    """In specs."""
    prefix: str = ""
    """Of the names that nodes get; empty: the name."""
    title: str = ""
    """In tables of layers; empty: the name with a capital."""
    attributes: Mapping[str, Check] = {}
    """Each attribute with its check, in canonical order."""
    min_inputs: int = 1
    max_inputs: int = 1
    node: type[NativeNode]
    """What the native engine makes of it."""
    frozen_node: type[NativeNode] | None = None
    """What it makes of it in training where none of its parameters learn, if that is another."""
    multiplies: bool = False
    """Whether its cost is multiply-adds: convolutions and dense layers."""
    is_activation: bool = False
    is_identity: bool = False
    """Whether inference leaves it out."""
    is_random: bool = False
    """Whether training draws factors for its elements; other frameworks get them as the tensor ``mask``."""
    moves_nothing: bool = False
    """Whether it is but another view of its input: tables leave it out."""
    rectifies: bool = False
    """Whether it is the ReLU that others may take in."""
    takes_relu: bool = False
    """Whether its kernels apply a ReLU in the same pass."""
    commutes_with_relu: bool = False
    """Whether it may come before a ReLU instead of after it."""
    output_axis: int | None = None
    """The axis of its weight that counts outputs, if scaling that axis scales the outputs."""
    keras_classes: tuple[str, ...] = ()
    """Layers and operations of Keras that its export is made of; a file with others is refused by the reader."""
    torch_helpers: Mapping[str, Callable[..., Any]] = {}
    """Functions that its expressions for PyTorch call."""

    # -- the network --------------------------------------------------------------------------------------------------
    @abstractmethod
    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """The shape of the output; inputs that do not fit are a :class:`SpecError`."""

    @abstractmethod
    def tensors(self, attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:
        """Parameters and state, in the order of flat buffers."""

    @abstractmethod
    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:
        """See the module."""

    # -- other frameworks ---------------------------------------------------------------------------------------------
    @abstractmethod
    def torch(self, layer: Layer, names: Sequence[str]) -> str:
        """An expression of the variables ``names`` in inference; it speaks of ``torch`` and ``functional``."""

    @abstractmethod
    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:
        """The same for an engine, where a variable ``training`` says whether it trains."""

    @abstractmethod
    def torch_module(self, layer: Layer) -> str:
        """The module that holds its weights in an exported program; empty if it has none."""

    @abstractmethod
    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Layers of Keras for inference."""

    @abstractmethod
    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Layers of Keras that know training too."""

    @abstractmethod
    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """Nodes of ONNX, the last of which gives the value ``name``."""

    @abstractmethod
    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Nodes of OpenVINO."""

    # -- checks -------------------------------------------------------------------------------------------------------
    def check_attributes(self, given: Attributes) -> dict[str, Any]:
        """The attributes in canonical form and order; unknown, missing and wrong ones are errors."""
        unknown, missing = sorted(map(str, given.keys() - self.attributes)), sorted(self.attributes.keys() - given)
        if unknown or missing:
            problem = f"unknown attribute {show(unknown[0])}" if unknown else f"attribute '{missing[0]}' is missing"
            raise SpecError(f"{problem}; {self.name} takes {', '.join(self.attributes) or 'no attributes'}")
        checked = {}
        for name, check in self.attributes.items():
            try:
                checked[name] = check(given[name])
            except SpecError as error:
                raise SpecError(f"{name} {error}") from None
        return checked

    def check_inputs(self, num_inputs: int) -> None:
        """Refuse a wrong number of inputs."""
        if not self.min_inputs <= num_inputs <= self.max_inputs:
            wanted = str(self.min_inputs) if self.min_inputs == self.max_inputs else f"at least {self.min_inputs}"
            raise SpecError(f"{self.name} takes {wanted} input(s), got {num_inputs}")

    def output_shape(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """The shape of the output, within sane limits."""
        shape = self.infer(attributes, inputs)
        try:
            check_extents(shape)
        except SpecError as error:
            raise SpecError(f"the output shape {error}") from None
        return shape


class PlainOperation(Operation):
    """An operation without tensors that does the same in training and in inference."""

    def tensors(self, attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:  # noqa: ARG002
        """None."""
        return ()

    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:
        """As in inference."""
        return self.torch(layer, names)

    def torch_module(self, layer: Layer) -> str:  # noqa: ARG002
        """None."""
        return ""

    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """As in inference."""
        return self.keras(writer, layer, inputs)


class ElementOperation(PlainOperation):
    """A plain operation of one input that keeps its shape and touches each element once."""

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """That of the input."""
        return inputs[0]

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """One for each element."""
        return prod(inputs[0])


class IdentityOperation(Operation):
    """What vanishes in inference."""

    is_identity = True

    def tensors(self, attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:  # noqa: ARG002
        """None."""
        return ()

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """None."""
        return 0

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """The input."""
        return names[0]

    def torch_module(self, layer: Layer) -> str:  # noqa: ARG002
        """None."""
        return ""

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """The input."""
        return inputs[0]

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:  # noqa: ARG002
        """The input."""
        return writer.node("Identity", inputs, name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """The input."""
        return inputs[0]


class WeightedOperation(Operation):
    """A weight, a bias if the attribute says so, and a linear map of the input: convolutions and dense layers."""

    multiplies = True
    takes_relu = True
    torch_function: str
    """Of ``torch.nn.functional``, and the attributes that it takes after input, weight and bias."""
    torch_geometry: tuple[str, ...] = ()

    @abstractmethod
    def weight(self, attributes: Attributes, inputs: Shapes) -> TensorRule:
        """The weight; its fans are those of the bias too."""

    @abstractmethod
    def openvino_product(self, writer: OpenVinoWriter, layer: Layer, value: Value) -> Value:
        """The linear map without its bias."""

    def tensors(self, attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:
        """The weight, then the bias."""
        weight = self.weight(attributes, inputs)
        num_outputs = self.infer(attributes, inputs)[0]
        bias = TensorRule("bias", (num_outputs,), "zeros", weight.fan_in, weight.fan_out)
        return (weight, bias) if attributes["bias"] else (weight,)

    def torch(self, layer: Layer, names: Sequence[str]) -> str:
        """The function with its tensors."""
        geometry = [str(layer.attributes[name]) for name in self.torch_geometry]
        given = [names[0], layer.tensors["weight"], layer.tensors.get("bias", "None"), *geometry]
        return f"functional.{self.torch_function}({', '.join(given)})"

    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:
        """As in inference."""
        return self.torch(layer, names)

    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """As in inference."""
        return self.keras(writer, layer, inputs)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """The product and its bias."""
        product = self.openvino_product(writer, layer, inputs[0])
        if "bias" not in layer.tensors:
            return product
        return writer.ops.add(product, writer.per_channel(layer.tensors["bias"], layer.shape))


class ChannelOperation(Operation):
    """What is ``factor * x + offset`` per channel in inference, and vanishes into a weighted operation before it."""

    @abstractmethod
    def affine(
        self, attributes: Attributes, tensors: Mapping[str, NDArray[Any]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factor and offset; layers of an export have them as the tensors ``scale`` and ``shift``."""


# -- shapes -----------------------------------------------------------------------------------------------------------
def image(name: str, shape: Shape) -> Shape:
    """``shape``, refused unless it is that of an image."""
    if len(shape) != 3:
        raise SpecError(f"{name} needs an image (channels, height, width), got shape {shape}")
    return shape


def window_misfit(window: Sequence[int], shape: Shape, padding: Sequence[int]) -> SpecError:
    """The error for a window that is larger than its padded input."""
    padded = f" even with padding {by(padding)}" if any(padding) else ""
    return SpecError(
        f"{by(window)} window does not fit {by(shape[1:])} input{padded}; "
        "use a smaller window, more padding or larger images"
    )


def torch_arguments(attributes: Attributes, **defaults: Any) -> str:
    """Keyword arguments of a module of PyTorch: those that differ from its defaults."""
    given = {name: attributes[name] for name, default in defaults.items() if attributes[name] != default}
    return "".join(f", {name}={value}" for name, value in given.items())
