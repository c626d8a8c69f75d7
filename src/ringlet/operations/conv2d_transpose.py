"""The transpose of a convolution: enlarges images by the stride."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, final

from ringlet.errors import SpecError
from ringlet.kernels.contract import RELU
from ringlet.operations.attributes import MAX_CHANNELS, Shape, by, integer, pair
from ringlet.operations.base import (
    TRAINED,
    Attributes,
    Layer,
    Shapes,
    TensorRule,
    WeightedOperation,
    image,
    torch_arguments,
)
from ringlet.operations.conv2d import DEFAULT_ALGORITHM, onnx_window
from ringlet.operations.native import Emitter, WeightedNode
from ringlet.operations.writers import NO_PADS, Arrangement, KerasWriter, OnnxWriter, OpenVinoWriter, Value


@final
class Conv2dTransposeNode(WeightedNode):
    """The transpose of the convolution that maps this output's shape to this input's.

    Its forward is that convolution's data gradient, its data gradient that convolution's forward, and its weight
    gradient the same with the two activations swapped. The weight ``(in, out, kh, kw)`` is the mirrored convolution's
    ``(K, C, R, S)``.
    """

    def forward(self, emit: Emitter) -> None:
        """The mirrored convolution's data gradient, then bias and ReLU in place."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        weight, bias = self.parameter(emit, "weight"), self.bias(emit)
        emit.call("conv2d_backward_data", x, weight, y, accumulate=False, **self._geometry())
        if bias is not None:
            emit.call("bias_forward", y, bias, relu=self.relu)
        elif self.relu:
            emit.call("activation_forward", RELU, y, y)

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input; a second contribution to the input goes through a buffer of its own."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("conv2d_backward_weight", dy, x, self.parameter_gradient(emit, "weight"), **self._geometry())
        self.emit_bias_gradient(emit, dy)
        if self.inputs[0] in emit.trainable:
            dx = emit.like(self.inputs[0])
            weight = self.parameter(emit, "weight")
            emit.call("conv2d_forward", dy, weight, None, dx, relu=False, **self._geometry())
            emit.contribute(self.inputs[0], dx)

    def _geometry(self) -> dict[str, Any]:
        return {
            "stride": self.pair("stride"),
            "padding": self.pair("padding"),
            "dilation": (1, 1),
            "groups": 1,
            "algorithm": DEFAULT_ALGORITHM,
        }


@final
class Conv2dTranspose(WeightedOperation):
    """The transpose of a convolution with one group."""

    name = "conv2d_transpose"
    prefix = "upconv"
    title = "Conv2DTranspose"
    attributes = {
        "filters": integer(1, MAX_CHANNELS), "kernel": pair(1), "stride": pair(1), "padding": pair(0),
        "output_padding": pair(0), **TRAINED,
    }  # fmt: skip
    node = Conv2dTransposeNode
    output_axis = 1
    keras_classes = ("Conv2DTranspose", "Cropping2D", "ZeroPadding2D")
    torch_function = "conv_transpose2d"
    torch_geometry = ("stride", "padding", "output_padding")

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """The input's extents times the stride, about."""
        _, *extents = image(self.name, inputs[0])
        stride, extra = attributes["stride"], attributes["output_padding"]
        if extra[0] >= stride[0] or extra[1] >= stride[1]:
            raise SpecError(f"output_padding {by(extra)} must be smaller than the stride {by(stride)}")
        sizes = [
            (extent - 1) * step - 2 * padding + kernel + more
            for extent, step, padding, kernel, more in zip(
                extents, stride, attributes["padding"], attributes["kernel"], extra, strict=True
            )
        ]
        if min(sizes) < 1:
            raise SpecError(
                f"padding {by(attributes['padding'])} leaves nothing of a {by(extents)} input; use less padding"
            )
        return (attributes["filters"], *sizes)

    def weight(self, attributes: Attributes, inputs: Shapes) -> TensorRule:
        """``(channels, filters, *kernel)``.

        ``fan_in`` is the number of products in one output element: only every stride-th tap of the kernel meets it.
        """
        filters, kernel, channels = attributes["filters"], attributes["kernel"], inputs[0][0]
        taps = prod(-(-extent // stride) for extent, stride in zip(kernel, attributes["stride"], strict=True))
        fans = channels * taps, filters * prod(kernel)
        return TensorRule("weight", (channels, filters, *kernel), attributes["initializer"], *fans)

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """A multiply-add for each element of the window and each input."""
        products: int = attributes["filters"] * prod(attributes["kernel"])
        return 2 * products * prod(inputs[0])

    def torch_module(self, layer: Layer) -> str:
        """``nn.ConvTranspose2d``."""
        attributes = layer.attributes
        geometry = torch_arguments(attributes, stride=(1, 1), padding=(0, 0), output_padding=(0, 0))
        bias = "" if "bias" in layer.tensors else ", bias=False"
        sizes = f"{layer.sources[0][0]}, {attributes['filters']}, {attributes['kernel']}"
        return f"nn.ConvTranspose2d({sizes}{geometry}{bias})"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Without padding, then cut to size: Keras pads transposed convolutions by rules of its own."""
        attributes, extents, value = layer.attributes, layer.sources[0][1:], inputs[0]
        paddings = attributes["padding"]
        if any(extra > padding for extra, padding in zip(attributes["output_padding"], paddings, strict=True)):
            value = writer.padded(value, ((0, 1), (0, 1)))  # there nothing but the bias comes out
            extents = tuple(extent + 1 for extent in extents)
        filters, kernel, stride = (attributes[name] for name in ("filters", "kernel", "stride"))
        options = {"use_bias": "bias" in layer.tensors, **writer.start(), **writer.options(layer)}
        made = writer.keras.layers.Conv2DTranspose(filters, kernel, strides=stride, **options)
        arrangement = Arrangement((layer.sources[0][0], filters, *kernel), (2, 3, 1, 0))
        result = writer.owned(layer, made, arrangement, value)
        crops = tuple(
            (padding, (extent - 1) * step + max(window, step) - padding - wanted)
            for extent, step, window, padding, wanted in zip(
                extents, stride, kernel, paddings, layer.shape[1:], strict=True
            )
        )
        return writer.keras.layers.Cropping2D(crops, dtype=writer.dtype)(result) if crops != NO_PADS else result

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """``ConvTranspose``."""
        extra = list(layer.attributes["output_padding"])
        window = onnx_window(layer.attributes)
        return writer.node("ConvTranspose", [*inputs, *writer.tensors(layer)], name, output_padding=extra, **window)

    def openvino_product(self, writer: OpenVinoWriter, layer: Layer, value: Value) -> Value:
        """``ConvolutionBackpropData``."""
        stride, padding, extra = (list(layer.attributes[name]) for name in ("stride", "padding", "output_padding"))
        return writer.ops.convolution_backprop_data(
            value,
            writer.ops.constant(layer.tensors["weight"]),
            strides=stride,
            pads_begin=padding,
            pads_end=padding,
            dilations=[1, 1],
            output_padding=extra,
        )


OPERATIONS = (Conv2dTranspose(),)
