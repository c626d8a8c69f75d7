"""Convolution. The native plan replaces ``algorithm`` when it tunes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, final

from ringlet.errors import SpecError
from ringlet.operations.attributes import MAX_CHANNELS, Shape, integer, pair
from ringlet.operations.base import (
    TRAINED,
    Attributes,
    Layer,
    Shapes,
    TensorRule,
    WeightedOperation,
    image,
    torch_arguments,
    window_misfit,
)
from ringlet.operations.native import Emitter, WeightedNode
from ringlet.operations.writers import Arrangement, KerasWriter, OnnxWriter, OpenVinoWriter, Value

DEFAULT_ALGORITHM = "direct"


@final
class Conv2dNode(WeightedNode):
    """``y = weight * x + bias``, ReLU on top if fused."""

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        weight, bias = self.parameter(emit, "weight"), self.bias(emit)
        emit.call("conv2d_forward", x, weight, bias, y, relu=self.relu, **self._geometry())

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("conv2d_backward_weight", x, dy, self.parameter_gradient(emit, "weight"), **self._geometry())
        self.emit_bias_gradient(emit, dy)
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            weight = self.parameter(emit, "weight")
            mask = None
            if self.inputs[0] in emit.consumed_once:
                mask = x
                emit.rectified.add(self.inputs[0])
            emit.call("conv2d_backward_data", dy, weight, dx, mask, accumulate=accumulate, **self._geometry())

    def _geometry(self) -> dict[str, Any]:
        return {
            "stride": self.pair("stride"),
            "padding": self.pair("padding"),
            "dilation": self.pair("dilation"),
            "groups": int(self.attribute("groups")),
            "algorithm": DEFAULT_ALGORITHM,
        }


@final
class Conv2d(WeightedOperation):
    """A convolution, in groups if asked for; a depthwise one has as many groups as channels."""

    name = "conv2d"
    prefix = "conv"
    title = "Conv2D"
    attributes = {
        "filters": integer(1, MAX_CHANNELS), "kernel": pair(1), "stride": pair(1), "padding": pair(0),
        "dilation": pair(1), "groups": integer(1, MAX_CHANNELS), **TRAINED,
    }  # fmt: skip
    node = Conv2dNode
    output_axis = 0
    keras_classes = ("Conv2D", "DepthwiseConv2D", "GetItem", "ZeroPadding2D")
    torch_function = "conv2d"
    torch_geometry = ("stride", "padding", "dilation", "groups")

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """Whole windows, rounded down."""
        channels, *extents = image(self.name, inputs[0])
        filters, groups = attributes["filters"], attributes["groups"]
        if channels % groups or filters % groups:
            raise SpecError(f"{groups} groups must divide the {channels} input channels and the {filters} filters")
        window = [
            dilation * (kernel - 1) + 1
            for kernel, dilation in zip(attributes["kernel"], attributes["dilation"], strict=True)
        ]
        sizes = [
            (extent + 2 * padding - reach) // stride + 1
            for extent, reach, padding, stride in zip(
                extents, window, attributes["padding"], attributes["stride"], strict=True
            )
        ]
        if min(sizes) < 1:
            raise window_misfit(window, inputs[0], attributes["padding"])
        return (filters, *sizes)

    def weight(self, attributes: Attributes, inputs: Shapes) -> TensorRule:
        """``(filters, channels / groups, *kernel)``."""
        filters, groups, kernel = attributes["filters"], attributes["groups"], attributes["kernel"]
        channels = inputs[0][0] // groups
        fans = channels * prod(kernel), filters // groups * prod(kernel)
        return TensorRule("weight", (filters, channels, *kernel), attributes["initializer"], *fans)

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:
        """A multiply-add for each element of the window and each output."""
        products: int = inputs[0][0] // attributes["groups"] * prod(attributes["kernel"])
        return 2 * products * prod(output)

    def torch_module(self, layer: Layer) -> str:
        """``nn.Conv2d``."""
        attributes = layer.attributes
        geometry = torch_arguments(attributes, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
        bias = "" if "bias" in layer.tensors else ", bias=False"
        return f"nn.Conv2d({layer.sources[0][0]}, {attributes['filters']}, {attributes['kernel']}{geometry}{bias})"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Conv2D`` or ``DepthwiseConv2D``; Keras has no layer with stride and dilation at once."""
        attributes, layers = layer.attributes, writer.keras.layers
        kernel, filters, groups = (attributes[name] for name in ("kernel", "filters", "groups"))
        stride, dilation = attributes["stride"], attributes["dilation"]
        value = writer.padded(inputs[0], [(padding, padding) for padding in attributes["padding"]])
        taken_later = max(stride) > 1 and max(dilation) > 1
        options = {
            "strides": (1, 1) if taken_later else stride,
            "dilation_rate": dilation,
            "use_bias": "bias" in layer.tensors,
            **writer.options(layer),
        }
        channels = layer.sources[0][0] // groups
        if groups > 1 and channels == 1 and stride[0] == stride[1] and dilation == (1, 1):
            multiplier = filters // groups
            made = layers.DepthwiseConv2D(kernel, depth_multiplier=multiplier, **writer.start("depthwise"), **options)
            arrangement = Arrangement((groups, multiplier, *kernel), (2, 3, 0, 1))
        else:
            made = layers.Conv2D(filters, kernel, groups=groups, **writer.start(), **options)
            arrangement = Arrangement((filters, channels, *kernel), (2, 3, 1, 0))
        result = writer.owned(layer, made, arrangement, value)
        if not taken_later:
            return result
        steps = slice(None, None, stride[0]), slice(None, None, stride[1])
        return result[:, :, *steps] if writer.channels_first else result[:, *steps]

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """``Conv``."""
        attributes = layer.attributes
        return writer.node(
            "Conv",
            [*inputs, *writer.tensors(layer)],
            name,
            dilations=list(attributes["dilation"]),
            group=attributes["groups"],
            **onnx_window(attributes),
        )

    def openvino_product(self, writer: OpenVinoWriter, layer: Layer, value: Value) -> Value:
        """``Convolution`` or ``GroupConvolution``."""
        ops, weight, groups = writer.ops, layer.tensors["weight"], layer.attributes["groups"]
        stride, padding, dilation = (list(layer.attributes[name]) for name in ("stride", "padding", "dilation"))
        if groups == 1:
            return ops.convolution(value, ops.constant(weight), stride, padding, padding, dilation)
        grouped = weight.reshape(groups, -1, *weight.shape[1:])
        return ops.group_convolution(value, ops.constant(grouped), stride, padding, padding, dilation)


def onnx_window(attributes: Attributes) -> dict[str, Any]:
    """Window, stride and padding as attributes of a node of ONNX."""
    return {
        "kernel_shape": list(attributes["kernel"]),
        "strides": list(attributes["stride"]),
        "pads": [*attributes["padding"]] * 2,
    }


OPERATIONS = (Conv2d(),)
