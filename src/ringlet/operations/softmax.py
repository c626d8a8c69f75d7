"""Softmax: probabilities over channels or features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ringlet.operations.base import ElementOperation, Layer
from ringlet.operations.native import ComputingNode, Emitter, Needs
from ringlet.operations.writers import KerasWriter, OnnxWriter, OpenVinoWriter, Value


@final
class SoftmaxNode(ComputingNode):
    """Softmax over channels."""

    def needs(self) -> Needs:
        """Only y."""
        return Needs(output_in_backward=True, overwritable=self.inputs)

    def forward(self, emit: Emitter) -> None:
        """One call."""
        emit.call("softmax_forward", emit.values[self.inputs[0]], emit.values[self.output])

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            dy = emit.gradient(self.output)
            emit.call("softmax_backward", emit.values[self.output], dy, dx, accumulate=accumulate)


@final
class Softmax(ElementOperation):
    """``exp(x_c) / sum_k exp(x_k)`` for each pixel or sample."""

    name = "softmax"
    node = SoftmaxNode
    keras_classes = ("Softmax",)
    is_activation = True

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """``torch.softmax``."""
        return f"torch.softmax({names[0]}, 1)"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Softmax``."""
        return writer.keras.layers.Softmax(writer.axis, **writer.options(layer))(inputs[0])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:  # noqa: ARG002
        """``Softmax``."""
        return writer.node("Softmax", inputs, name, axis=1)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """``Softmax``."""
        return writer.ops.softmax(inputs[0], 1)


OPERATIONS = (Softmax(),)
