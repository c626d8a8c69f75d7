"""Maximum and mean over windows, or over the whole image.

Frameworks have rules of their own for windows that are cut at the border, so they get whole windows and padding:
:func:`pool_pads`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import SpecError
from ringlet.libraries import require
from ringlet.operations.attributes import Shape, by, flag, pair
from ringlet.operations.base import Attributes, Layer, PlainOperation, Shapes, image, window_misfit
from ringlet.operations.native import ComputingNode, Emitter, Needs, Tensor
from ringlet.operations.writers import NO_PADS, KerasWriter, OnnxWriter, OpenVinoWriter, Pads, Value

MAX_POOL_WINDOW = 255
_WINDOW = {"kernel": pair(1, MAX_POOL_WINDOW), "stride": pair(1), "padding": pair(0), "ceil_mode": flag()}


def pooled_extent(extent: int, kernel: int, stride: int, padding: int, *, ceil_mode: bool) -> int:
    """The number of windows along one axis; ``ceil_mode`` adds a cut one, unless it starts in the padding."""
    span = extent + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
    count = span // stride + 1
    if ceil_mode and (count - 1) * stride >= extent + padding:
        count -= 1
    return count


def pool_pads(attributes: Attributes, source: Shape, shape: Shape) -> Pads:
    """Padding with which whole windows, rounded down, give ``shape``: ``ceil_mode`` is in the end padding.

    So no framework's own rule for windows that are cut at the border counts: that is where they disagree. The end
    padding is always smaller than the window, and smaller than the padding asked for where no window reaches that far.
    """
    rows, columns = (
        (padding, max((count - 1) * stride + kernel - extent - padding, 0))
        for extent, count, kernel, stride, padding in zip(
            source[1:], shape[1:], *(attributes[name] for name in ("kernel", "stride", "padding")), strict=True
        )
    )
    return rows, columns


# -- the native engine ------------------------------------------------------------------------------------------------
class _PoolNode(ComputingNode):
    """Pooling needs nothing but, for maxima, their places."""

    def needs(self) -> Needs:
        """Neither input nor output."""
        return Needs()

    def window(self) -> dict[str, Any]:
        """Kernel, stride and padding: as the node says, or the whole image."""
        names = ("kernel", "stride", "padding")
        if self.fused.attributes:
            return {name: self.pair(name) for name in names}
        _, height, width, _ = self.shapes[self.inputs[0]]
        return dict(zip(names, ((height, width), (height, width), (0, 0)), strict=True))

    def as_image(self, tensor: Tensor) -> Tensor:
        """A pooled tensor as ``(C, P, Q, L)``: global pooling gives ``(C, L)``."""
        channels, *rest, lanes = tensor.shape
        height, width = rest or (1, 1)
        return tensor.reshape((channels, height, width, lanes))


@final
class MaxPoolNode(_PoolNode):
    """The maximum of each window."""

    def forward(self, emit: Emitter) -> None:
        """One call; the places of the maxima are kept, those that a postponed ReLU cuts off excepted."""
        x, y = emit.values[self.inputs[0]], self.as_image(emit.values[self.output])
        emit.call("max_pool2d_forward", x, y, self._argmax(emit), relu=self.relu, **self.window())

    def backward(self, emit: Emitter) -> None:
        """One call; few elements flow back, so that the bias below is summed up here at little cost."""
        (source,) = self.inputs
        if (target := emit.target(source)) is not None:
            dx, accumulate = target
            dy, sums = self.as_image(emit.gradient(self.output)), emit.bias_gradients.get(source)
            if sums is not None:
                emit.summed.add(source)
            emit.call("max_pool2d_backward", dy, self._argmax(emit), dx, sums, accumulate=accumulate, **self.window())

    def _argmax(self, emit: Emitter) -> Tensor:
        shape = self.as_image(emit.values[self.output]).shape
        return emit.saved(self.output, "argmax", shape, np.dtype(np.uint16))


@final
class AveragePoolNode(_PoolNode):
    """The mean of each window; padding is not counted."""

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], self.as_image(emit.values[self.output])
        emit.call("avg_pool2d_forward", x, y, **self.window())

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            dy = self.as_image(emit.gradient(self.output))
            emit.call("avg_pool2d_backward", dy, dx, accumulate=accumulate, **self.window())


# -- windows ----------------------------------------------------------------------------------------------------------
class _Pool(PlainOperation):
    prefix = "pool"
    attributes = _WINDOW

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """As many windows as fit."""
        channels, *extents = image("pooling", inputs[0])
        kernel, padding = attributes["kernel"], attributes["padding"]
        if any(2 * border > window for border, window in zip(padding, kernel, strict=True)):
            raise SpecError(f"padding {by(padding)} must be at most half of the {by(kernel)} window")
        sizes = [
            pooled_extent(*numbers, ceil_mode=attributes["ceil_mode"])
            for numbers in zip(extents, kernel, attributes["stride"], padding, strict=True)
        ]
        if min(sizes) < 1:
            raise window_misfit(kernel, inputs[0], padding)
        return (channels, *sizes)

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """One for each element of each window."""
        area: int = prod(attributes["kernel"])
        return area * prod(output)

    def torch(self, layer: Layer, names: Sequence[str]) -> str:
        """PyTorch pads both sides alike and counts padding's windows its own way: uneven padding is spelled out."""
        (top, bottom), (left, right) = self.pads(layer)
        window = f"{layer.attributes['kernel']}, {layer.attributes['stride']}"
        if (top, left) != (bottom, right):
            return self.torch_uneven(names[0], window, (left, right, top, bottom))
        return self.torch_even(names[0], window, "" if (top, left) == (0, 0) else f", padding={(top, left)}")

    @abstractmethod
    def torch_even(self, x: str, window: str, padding: str) -> str:
        """The function with the same padding on both sides, or none."""

    @abstractmethod
    def torch_uneven(self, x: str, window: str, pads: tuple[int, int, int, int]) -> str:
        """The function of an input that is padded before."""

    def pads(self, layer: Layer) -> Pads:
        """See :func:`pool_pads`."""
        return pool_pads(layer.attributes, layer.sources[0], layer.shape)

    def keras_window(self, kind: Any, writer: KerasWriter, layer: Layer, value: Value) -> Value:
        """A layer of Keras without padding."""
        return kind(layer.attributes["kernel"], layer.attributes["stride"], **writer.options(layer))(value)

    def onnx_window(self, layer: Layer) -> dict[str, Any]:
        """Attributes of a node of ONNX."""
        rows, columns = self.pads(layer)
        return {
            "kernel_shape": list(layer.attributes["kernel"]),
            "strides": list(layer.attributes["stride"]),
            "pads": [rows[0], columns[0], rows[1], columns[1]],
        }

    def openvino_window(self, layer: Layer) -> tuple[list[int], list[int], list[int], list[int]]:
        """Stride, padding before and after, window."""
        pads = self.pads(layer)
        kernel, stride = (list(layer.attributes[name]) for name in ("kernel", "stride"))
        return stride, [before for before, _ in pads], [after for _, after in pads], kernel


@final
class MaxPool2d(_Pool):
    """The maximum of each window."""

    name = "max_pool2d"
    title = "Pool2D"
    node = MaxPoolNode
    keras_classes = ("MaxPooling2D", "Pad")
    commutes_with_relu = True

    def torch_even(self, x: str, window: str, padding: str) -> str:
        """One function."""
        return f"functional.max_pool2d({x}, {window}{padding})"

    def torch_uneven(self, x: str, window: str, pads: tuple[int, int, int, int]) -> str:
        """Padded with what is below everything."""
        return f'functional.max_pool2d(functional.pad({x}, {pads}, value=float("-inf")), {window})'

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``MaxPooling2D`` of an input that is padded with the lowest number."""
        pads, value = self.pads(layer), inputs[0]
        if pads != NO_PADS:
            lowest = float(np.finfo(np.float32).min)
            around = ((0, 0), (0, 0), *pads) if writer.channels_first else ((0, 0), *pads, (0, 0))
            value = writer.keras.ops.pad(value, around, constant_values=lowest)
        return self.keras_window(writer.keras.layers.MaxPooling2D, writer, layer, value)

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """``MaxPool``."""
        return writer.node("MaxPool", inputs, name, **self.onnx_window(layer))

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """The first form of the operation: later ones have a second output, which their users would have to pass by."""
        return require("openvino.opset1").max_pool(inputs[0], *self.openvino_window(layer))


@final
class AvgPool2d(_Pool):
    """The mean of each window; padding is not counted."""

    name = "avg_pool2d"
    title = "AvgPool2D"
    node = AveragePoolNode
    keras_classes = ("AveragePooling2D", "Multiply", "ZeroPadding2D")

    def torch_even(self, x: str, window: str, padding: str) -> str:
        """One function."""
        return f"functional.avg_pool2d({x}, {window}{padding}{', count_include_pad=False' if padding else ''})"

    def torch_uneven(self, x: str, window: str, pads: tuple[int, int, int, int]) -> str:
        """The mean of padded windows over the share of each that lies inside the image."""
        ones = f"functional.pad(torch.ones_like({x}[:1, :1]), {pads})"
        mean = f"functional.avg_pool2d(functional.pad({x}, {pads}), {window})"
        return f"{mean} / functional.avg_pool2d({ones}, {window})"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """The mean of whole windows, times the share of each that lies inside the image, the other way round."""
        pads = self.pads(layer)
        value = writer.padded(inputs[0], pads)
        result = self.keras_window(writer.keras.layers.AveragePooling2D, writer, layer, value)
        if pads == NO_PADS:
            return result
        kernels, strides = layer.attributes["kernel"], layer.attributes["stride"]
        shares = [
            _inverse_shares(extent, count, kernel, stride, before)
            for extent, count, kernel, stride, (before, _) in zip(
                layer.sources[0][1:], layer.shape[1:], kernels, strides, pads, strict=True
            )
        ]
        factors = np.multiply.outer(*shares).astype(writer.dtype)
        return result * (factors[None, None] if writer.channels_first else factors[None, :, :, None])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """``AveragePool``."""
        return writer.node("AveragePool", inputs, name, count_include_pad=0, **self.onnx_window(layer))

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``AvgPool``."""
        return writer.ops.avg_pool(inputs[0], *self.openvino_window(layer), exclude_pad=True)


def _inverse_shares(extent: int, count: int, kernel: int, stride: int, padding: int) -> NDArray[np.float64]:
    """Along one axis: the size of a window over how much of it lies inside the image."""
    start = np.arange(count) * stride - padding
    inside = np.minimum(start + kernel, extent) - np.maximum(start, 0)
    return np.asarray(kernel / inside, np.float64)


# -- the whole image --------------------------------------------------------------------------------------------------
class _GlobalPool(PlainOperation):
    """One number for each channel; frameworks differ by the word for it."""

    prefix = "global_pool"
    torch_method: str
    onnx_node: str
    openvino_function: str

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """The channels."""
        return image("global pooling", inputs[0])[:1]

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """One for each element."""
        return prod(inputs[0])

    def torch(self, layer: Layer, names: Sequence[str]) -> str:  # noqa: ARG002
        """A method of the tensor."""
        return f"{names[0]}.{self.torch_method}((2, 3))"

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A layer."""
        return getattr(writer.keras.layers, self.keras_classes[0])(**writer.options(layer))(inputs[0])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """Pooled to one pixel, then flat."""
        return writer.node("Flatten", [writer.node(self.onnx_node, inputs, f"{layer.name}.pooled")], name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG002
        """A reduction."""
        axes = writer.ops.constant(np.array([2, 3], np.int64))
        return getattr(writer.ops, self.openvino_function)(inputs[0], axes, keep_dims=False)


@final
class GlobalAvgPool2d(_GlobalPool):
    """The mean of each channel."""

    name = "global_avg_pool2d"
    title = "GlobalAvgPool2D"
    node = AveragePoolNode
    torch_method, keras_classes = "mean", ("GlobalAveragePooling2D",)
    onnx_node, openvino_function = "GlobalAveragePool", "reduce_mean"


@final
class GlobalMaxPool2d(_GlobalPool):
    """The maximum of each channel."""

    name = "global_max_pool2d"
    title = "GlobalPool2D"
    node = MaxPoolNode
    commutes_with_relu = True
    torch_method, keras_classes = "amax", ("GlobalMaxPooling2D",)
    onnx_node, openvino_function = "GlobalMaxPool", "reduce_max"


OPERATIONS = (MaxPool2d(), AvgPool2d(), GlobalAvgPool2d(), GlobalMaxPool2d())
