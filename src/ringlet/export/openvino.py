"""A network as an OpenVINO model, written with OpenVINO's own operations: no other framework takes part.

The graph takes ``images``, stored values as the training data had them, (n, H, W, C) bytes (or floats, for networks
trained on floats), any number at once, and gives ``outputs`` (n, K) or (n, K, H, W) float32. Normalisation and the
order of the axes are inside; the description is in the model's ``rt_info``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringlet.export.network import Floats, Layer, Network, pool_pads
from ringlet.inference.description import INPUT, KEY, OUTPUT, Description
from ringlet.kernels.contract import ARCTANH_LIMIT
from ringlet.libraries import require

Value = Any
"""A node of an OpenVINO graph."""


def build_model(network: Network, description: Description) -> Any:
    """The ``openvino.Model`` of a network, float32."""
    return _Writer(network, description).model()


def save(model: Any, path: Path, description: Description) -> None:
    """Write ``path`` (.xml) and the weights beside it (.bin); half precision if the description says so."""
    openvino = require("openvino")
    model.set_rt_info(description.to_json(), [KEY, "description"])
    openvino.save_model(model, path, compress_to_fp16=description.weights == "fp16")


class _Writer:
    """Writes one graph; one method per operation."""

    def __init__(self, network: Network, description: Description) -> None:
        self._ops = require("openvino.opset13")
        self._openvino = require("openvino")
        self._network, self._description = network, description
        self._values: dict[str, Value] = {}

    def model(self) -> Any:
        parameter = self._ops.parameter([-1, *self._description.preprocessing.graph_shape], self._type(), name=INPUT)
        parameter.output(0).get_tensor().set_names({INPUT})
        self._values[self._network.input_name] = self._normalized(parameter)
        for layer in self._network.layers:
            value = self._written(layer)
            value.set_friendly_name(layer.name)
            self._values[layer.name] = value
        result = self._ops.result(value, name=OUTPUT)
        value.output(0).get_tensor().set_names({OUTPUT})
        return self._openvino.Model([result], [parameter], self._network.name)

    def _type(self) -> Any:
        return self._openvino.Type(self._description.preprocessing.dtype)

    def _normalized(self, parameter: Value) -> Value:
        """``value * factor + offset`` per channel, rounded as training rounds it, and channels before rows."""
        preprocessing, ops = self._description.preprocessing, self._ops
        value = ops.convert(parameter, "f32") if preprocessing.dtype == np.uint8 else parameter
        if preprocessing.is_image:
            value = ops.transpose(value, ops.constant(np.array([0, 3, 1, 2], np.int64)))
        factor, offset = preprocessing.normalization.factors(np.float32)
        value = ops.multiply(value, self._per_channel(factor, preprocessing.input_shape))
        return ops.add(value, self._per_channel(offset, preprocessing.input_shape))

    def _per_channel(self, values: Floats, shape: tuple[int, ...]) -> Value:
        return self._ops.constant(values.reshape(1, -1, *[1] * (len(shape) - 1)))

    def _written(self, layer: Layer) -> Value:
        inputs = [self._values[name] for name in layer.inputs]
        if layer.op in ("add", "concat"):
            return self._joined(layer, inputs)
        if layer.op in _ELEMENTWISE:
            return _ELEMENTWISE[layer.op](self._ops, inputs[0], layer)
        write: Callable[[Layer, Value], Value] = getattr(self, f"_{layer.op}")
        return write(layer, inputs[0])

    def _joined(self, layer: Layer, inputs: list[Value]) -> Value:
        if layer.op == "concat":
            return self._ops.concat(inputs, 1)
        total = inputs[0]
        for value in inputs[1:]:
            total = self._ops.add(total, value)
        return total

    def _with_bias(self, layer: Layer, value: Value) -> Value:
        if "bias" not in layer.tensors:
            return value
        return self._ops.add(value, self._per_channel(layer.tensors["bias"], layer.shape))

    def _dense(self, layer: Layer, value: Value) -> Value:
        weight = self._ops.constant(layer.tensors["weight"])
        return self._with_bias(layer, self._ops.matmul(value, weight, False, True))

    def _conv2d(self, layer: Layer, value: Value) -> Value:
        weight, groups = layer.tensors["weight"], layer.attributes["groups"]
        stride, padding, dilation = (list(layer.attributes[name]) for name in ("stride", "padding", "dilation"))
        if groups == 1:
            result = self._ops.convolution(value, self._ops.constant(weight), stride, padding, padding, dilation)
        else:
            grouped = weight.reshape(groups, -1, *weight.shape[1:])
            result = self._ops.group_convolution(value, self._ops.constant(grouped), stride, padding, padding, dilation)
        return self._with_bias(layer, result)

    def _conv2d_transpose(self, layer: Layer, value: Value) -> Value:
        stride, padding, extra = (list(layer.attributes[name]) for name in ("stride", "padding", "output_padding"))
        result = self._ops.convolution_backprop_data(
            value,
            self._ops.constant(layer.tensors["weight"]),
            strides=stride,
            pads_begin=padding,
            pads_end=padding,
            dilations=[1, 1],
            output_padding=extra,
        )
        return self._with_bias(layer, result)

    def _window(self, layer: Layer) -> tuple[list[int], list[int], list[int], list[int]]:
        pads = pool_pads(layer, self._network.shape(layer.inputs[0]))
        kernel, stride = (list(layer.attributes[name]) for name in ("kernel", "stride"))
        return stride, [pair[0] for pair in pads], [pair[1] for pair in pads], kernel

    def _max_pool2d(self, layer: Layer, value: Value) -> Value:
        stride, begin, end, kernel = self._window(layer)
        # The first form of the operation: later ones have a second output, which their users would have to pass by.
        return require("openvino.opset1").max_pool(value, stride, begin, end, kernel)

    def _avg_pool2d(self, layer: Layer, value: Value) -> Value:
        stride, begin, end, kernel = self._window(layer)
        return self._ops.avg_pool(value, stride, begin, end, kernel, exclude_pad=True)

    def _global_avg_pool2d(self, layer: Layer, value: Value) -> Value:  # noqa: ARG002
        return self._ops.reduce_mean(value, self._axes(), keep_dims=False)

    def _global_max_pool2d(self, layer: Layer, value: Value) -> Value:  # noqa: ARG002
        return self._ops.reduce_max(value, self._axes(), keep_dims=False)

    def _axes(self) -> Value:
        return self._ops.constant(np.array([2, 3], np.int64))

    def _affine(self, layer: Layer, value: Value) -> Value:
        scale, shift = (self._per_channel(layer.tensors[role], layer.shape) for role in ("scale", "shift"))
        return self._ops.add(self._ops.multiply(value, scale), shift)

    def _flatten(self, layer: Layer, value: Value) -> Value:
        shape = self._ops.constant(np.array([0, layer.shape[0]], np.int64))
        return self._ops.reshape(value, shape, special_zero=True)


def _arctanh(ops: Any, value: Value, _: Layer) -> Value:
    """The arguments and results that the engine allows: nothing becomes infinite."""
    limit = 1 - 2 * float(np.finfo(np.float32).eps)
    return ops.clamp(ops.atanh(ops.clamp(value, -limit, limit)), -ARCTANH_LIMIT, ARCTANH_LIMIT)


def _log_sigmoid(ops: Any, value: Value, _: Layer) -> Value:
    return ops.negative(ops.softplus(ops.negative(value)))


def _leaky_relu(ops: Any, value: Value, layer: Layer) -> Value:
    return ops.prelu(value, ops.constant(np.array([layer.attributes["slope"]], np.float32)))


_ELEMENTWISE: dict[str, Callable[[Any, Value, Layer], Value]] = {
    "relu": lambda ops, value, _: ops.relu(value),
    "relu6": lambda ops, value, _: ops.clamp(value, 0.0, 6.0),
    "sigmoid": lambda ops, value, _: ops.sigmoid(value),
    "tanh": lambda ops, value, _: ops.tanh(value),
    "softmax": lambda ops, value, _: ops.softmax(value, 1),
    "arctanh": _arctanh,
    "log_sigmoid": _log_sigmoid,
    "leaky_relu": _leaky_relu,
}
