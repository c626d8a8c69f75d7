"""The fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import final

from ringlet.errors import SpecError
from ringlet.operations.attributes import MAX_CHANNELS, Shape, integer
from ringlet.operations.base import TRAINED, Attributes, Layer, Shapes, TensorRule, WeightedOperation
from ringlet.operations.native import Emitter, WeightedNode
from ringlet.operations.writers import Arrangement, KerasWriter, OnnxWriter, OpenVinoWriter, Value


@final
class DenseNode(WeightedNode):
    """``y = weight @ x + bias``, ReLU on top if fused."""

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        emit.call("dense_forward", x, self.parameter(emit, "weight"), self.bias(emit), y, relu=self.relu)

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("dense_backward_weight", x, dy, self.parameter_gradient(emit, "weight"))
        self.emit_bias_gradient(emit, dy)
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            emit.call("dense_backward_data", dy, self.parameter(emit, "weight"), dx, accumulate=accumulate)


@final
class Dense(WeightedOperation):
    """``units`` numbers, each a weighted sum of all features."""

    name = "dense"
    title = "FC"
    attributes = {"units": integer(1, MAX_CHANNELS), **TRAINED}
    node = DenseNode
    output_axis = 0
    keras_classes = ("Dense",)
    torch_function = "linear"

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """``(units,)``."""
        if len(inputs[0]) != 1:
            raise SpecError(f"dense needs features (one axis), got shape {inputs[0]}; put a flatten before it")
        return (attributes["units"],)

    def weight(self, attributes: Attributes, inputs: Shapes) -> TensorRule:
        """``(units, features)``."""
        features, units = inputs[0][0], attributes["units"]
        return TensorRule("weight", (units, features), attributes["initializer"], features, units)

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """A multiply-add for each weight."""
        return 2 * prod(inputs[0]) * prod(output)

    def torch_module(self, layer: Layer) -> str:
        """``nn.Linear``."""
        bias = "" if "bias" in layer.tensors else ", bias=False"
        return f"nn.Linear({layer.sources[0][0]}, {layer.attributes['units']}{bias})"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Dense``."""
        units = layer.attributes["units"]
        options = {"use_bias": "bias" in layer.tensors, **writer.start(), **writer.options(layer)}
        made = writer.keras.layers.Dense(units, **options)
        return writer.owned(layer, made, Arrangement((units, *layer.sources[0]), (1, 0)), inputs[0])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """``Gemm``."""
        return writer.node("Gemm", [*inputs, *writer.tensors(layer)], name, transB=1)

    def openvino_product(self, writer: OpenVinoWriter, layer: Layer, value: Value) -> Value:
        """``MatMul``."""
        return writer.ops.matmul(value, writer.ops.constant(layer.tensors["weight"]), False, True)


OPERATIONS = (Dense(),)
