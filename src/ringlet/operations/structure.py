"""Operations that join or reshape values, mostly free: input, flatten, concat, add."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import final

import numpy as np

from ringlet.errors import SpecError
from ringlet.operations.attributes import Shape, check_shape
from ringlet.operations.base import Attributes, IdentityOperation, Layer, PlainOperation, Shapes
from ringlet.operations.native import ComputingNode, Emitter, NativeNode, Needs, View
from ringlet.operations.writers import KerasWriter, OnnxWriter, OpenVinoWriter, Value


# -- the native engine ------------------------------------------------------------------------------------------------
@final
class FlattenNode(NativeNode):
    """The same bytes with one feature axis."""

    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """The input itself."""
        return ((self.inputs[0], 0),)

    def forward(self, emit: Emitter) -> None:
        """Nothing, as a rule."""
        self.emit_views(emit)

    def backward(self, emit: Emitter) -> None:
        """Nothing, if it is the input's only consumer."""
        emit.contribute(self.inputs[0], emit.gradient(self.output).reshape(self.shapes[self.inputs[0]]))


@final
class ConcatNode(NativeNode):
    """Channels side by side: producers write straight into their part."""

    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """Every input, one after the other."""
        views, start = [], 0
        for name in self.inputs:
            views.append((name, start))
            start += prod(self.shapes[name])
        return tuple(views)

    def forward(self, emit: Emitter) -> None:
        """Copies of inputs that lie elsewhere."""
        self.emit_views(emit)

    def backward(self, emit: Emitter) -> None:
        """Each input gets its part of the gradient."""
        gradient = emit.gradient(self.output)
        for name, offset in self.views():
            part = gradient.slice_of(offset * gradient.dtype.itemsize, self.shapes[name])
            emit.contribute(name, part)


@final
class AddNode(ComputingNode):
    """The sum of two or more values."""

    def needs(self) -> Needs:
        """Nothing; a sum of two may overwrite one (of more it might overwrite a term that is still to be added)."""
        return Needs(overwritable=self.inputs if len(self.inputs) == 2 else ())

    def forward(self, emit: Emitter) -> None:
        """One call per further input."""
        y = emit.values[self.output]
        first, *others = (emit.values[name] for name in self.inputs)
        for term in others:
            emit.call("add", first, term, y)
            first = y

    def backward(self, emit: Emitter) -> None:
        """Every input gets the output's gradient."""
        gradient = emit.gradient(self.output)
        for name in self.inputs:
            emit.contribute(name, gradient)


# -- the operations ---------------------------------------------------------------------------------------------------
@final
class Input(IdentityOperation):
    """Where a graph starts: the samples, of which every framework has its own idea."""

    name = "input"
    attributes = {"shape": check_shape}
    min_inputs = max_inputs = 0

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """As the attribute says."""
        shape: Shape = attributes["shape"]
        return shape

    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """The samples."""
        return names[0]

    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """The samples."""
        return inputs[0]


@final
class Flatten(PlainOperation):
    """An image as features, in the order channel, row, column."""

    name = "flatten"
    node = FlattenNode
    keras_classes = ("Flatten", "Permute")
    moves_nothing = True

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """All elements."""
        return (prod(inputs[0]),)

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """None."""
        return 0

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """A method of the tensor."""
        return f"{names[0]}.flatten(1)"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Features in the order of the specs: channels first."""
        source, layers, value = layer.sources[0], writer.keras.layers, inputs[0]
        if len(source) == 3 and source[0] > 1 and source[1] * source[2] > 1 and not writer.channels_first:
            value = layers.Permute((3, 1, 2), dtype=writer.dtype)(value)
        return layers.Flatten("channels_last", **writer.options(layer))(value)  # takes the axes as they are

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:  # noqa: ARG002
        """``Flatten``."""
        return writer.node("Flatten", inputs, name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Reshape``."""
        shape = writer.ops.constant(np.array([0, layer.shape[0]], np.int64))
        return writer.ops.reshape(inputs[0], shape, special_zero=True)


@final
class Concat(PlainOperation):
    """Values joined along their channels."""

    name = "concat"
    min_inputs, max_inputs = 2, 1 << 16
    node = ConcatNode
    keras_classes = ("Concatenate",)

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """All channels."""
        for shape in inputs:
            if shape[1:] != inputs[0][1:]:
                raise SpecError(
                    f"concat joins channels, so the other extents must be equal; got {inputs[0]} and {shape}"
                )
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """None."""
        return 0

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """``torch.cat``."""
        return f"torch.cat(({', '.join(names)}), 1)"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Concatenate``."""
        return writer.keras.layers.Concatenate(writer.axis, **writer.options(layer))(list(inputs))

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:  # noqa: ARG002
        """``Concat``."""
        return writer.node("Concat", inputs, name, axis=1)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """``Concat``."""
        return writer.ops.concat(list(inputs), 1)


@final
class Add(PlainOperation):
    """The sum of values of equal shape."""

    name = "add"
    min_inputs, max_inputs = 2, 1 << 16
    node = AddNode
    keras_classes = ("Add",)

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """That of every input."""
        for shape in inputs:
            if shape != inputs[0]:
                raise SpecError(f"add needs equal shapes, got {inputs[0]} and {shape}")
        return inputs[0]

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """One for each element and addition."""
        return (len(inputs) - 1) * prod(output)

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """A sum."""
        return " + ".join(names)

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Add``."""
        return writer.keras.layers.Add(**writer.options(layer))(list(inputs))

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:  # noqa: ARG002
        """``Sum``."""
        return writer.node("Sum", inputs, name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """One ``Add`` for each further input."""
        total = inputs[0]
        for value in inputs[1:]:
            total = writer.ops.add(total, value)
        return total


OPERATIONS = (Input(), Flatten(), Concat(), Add())
