"""A network as a Keras model, functional, of Keras' own layers and operations: ``NAME.keras`` loads without Ringlet.

Images are (n, H, W, C) throughout, the only layout that TensorFlow has on processors; so masks come out as
(n, H, W, K). Normalisation is the first layer. The description is a member of the archive, ``ringlet.json``.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.export.network import Layer, Network, Pads, pool_pads
from ringlet.inference.description import INPUT, KEY, Description
from ringlet.libraries import require
from ringlet.kernels.contract import ARCTANH_LIMIT

MEMBER = f"{KEY}.json"
_LIMIT = 1 - 2 * float(np.finfo(np.float32).eps)
_NORMALIZE = "normalize"
_NO_PADS: Pads = ((0, 0), (0, 0))

Value = Any
"""A symbolic tensor of Keras."""


def build_model(network: Network, description: Description) -> Any:
    """The ``keras.Model`` of a network."""
    config: Any = require("keras").config
    usual = config.image_data_format()
    config.set_image_data_format("channels_last")
    try:
        return _Writer(network, description).model()
    finally:
        config.set_image_data_format(usual)


def save(model: Any, path: Path, description: Description) -> None:
    """Write the .keras file and put the description into it."""
    model.save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(MEMBER, description.to_json())


class _Writer:
    """Writes one functional model; one method per operation that is more than a layer of Keras."""

    def __init__(self, network: Network, description: Description) -> None:
        self._keras: Any = require("keras")
        self._layers, self._ops = self._keras.layers, self._keras.ops
        self._network, self._description = network, description
        self._values: dict[str, Value] = {}
        self._weights: list[tuple[Any, list[NDArray[Any]]]] = []
        self._names: set[str] = {INPUT, _NORMALIZE}

    def model(self) -> Any:
        preprocessing = self._description.preprocessing
        images = self._keras.Input(preprocessing.graph_shape, dtype=str(preprocessing.dtype), name=INPUT)
        factor, offset = (values.tolist() for values in preprocessing.normalization.factors(np.float32))
        if len(factor) == 1:
            factor, offset = factor[0], offset[0]
        normalize = self._layers.Rescaling(factor, offset, dtype="float32", name=_NORMALIZE)
        self._values[self._network.input_name] = normalize(images)
        for layer in self._network.layers:
            value = self._written(layer)
            self._values[layer.name] = value
        model = self._keras.Model(images, value, name=_plain(self._network.name, set()))
        for made, tensors in self._weights:
            made.set_weights(tensors)
        return model

    def _name(self, layer: Layer) -> str:
        name = _plain(layer.name, self._names)
        self._names.add(name)
        return name

    def _written(self, layer: Layer) -> Value:
        inputs = [self._values[name] for name in layer.inputs]
        if layer.op in ("add", "concat"):
            kind = self._layers.Add if layer.op == "add" else self._layers.Concatenate
            return kind(dtype="float32", name=self._name(layer))(inputs)
        write: Callable[[Layer, Value], Value] | None = getattr(self, f"_{layer.op}", None)
        if write is not None:
            return write(layer, inputs[0])
        return self._layers.Activation(layer.op, dtype="float32", name=self._name(layer))(inputs[0])

    def _weighted(self, made: Any, value: Value, *tensors: NDArray[Any] | None) -> Value:
        """A layer applied; it gets its weights when the model is complete."""
        result = made(value)
        self._weights.append((made, [tensor for tensor in tensors if tensor is not None]))
        return result

    def _dense(self, layer: Layer, value: Value) -> Value:
        weight, bias = layer.tensors["weight"], layer.tensors.get("bias")
        made = self._layers.Dense(len(weight), use_bias=bias is not None, dtype="float32", name=self._name(layer))
        return self._weighted(made, value, weight.T, bias)

    def _conv2d(self, layer: Layer, value: Value) -> Value:
        attributes, weight, bias = layer.attributes, layer.tensors["weight"], layer.tensors.get("bias")
        value = self._padded(value, tuple((padding, padding) for padding in attributes["padding"]))
        groups, stride, dilation = (attributes[name] for name in ("groups", "stride", "dilation"))
        taken_later = max(stride) > 1 and max(dilation) > 1  # Keras has no layer that does both
        options = {
            "strides": (1, 1) if taken_later else stride,
            "dilation_rate": dilation,
            "use_bias": bias is not None,
            "dtype": "float32",
            "name": self._name(layer),
        }
        if groups > 1 and weight.shape[1] == 1 and stride[0] == stride[1] and dilation == (1, 1):
            made = self._layers.DepthwiseConv2D(attributes["kernel"], depth_multiplier=len(weight) // groups, **options)
            weight = weight.reshape(groups, -1, *weight.shape[2:]).transpose(2, 3, 0, 1)
        else:
            made = self._layers.Conv2D(len(weight), attributes["kernel"], groups=groups, **options)
            weight = weight.transpose(2, 3, 1, 0)
        result = self._weighted(made, value, weight, bias)
        return result[:, :: stride[0], :: stride[1]] if taken_later else result

    def _conv2d_transpose(self, layer: Layer, value: Value) -> Value:
        """Without padding, then cut to size: Keras pads transposed convolutions by rules of its own."""
        attributes, weight, bias = layer.attributes, layer.tensors["weight"], layer.tensors.get("bias")
        extents = self._network.shape(layer.inputs[0])[1:]
        if any(
            extra > padding for extra, padding in zip(attributes["output_padding"], attributes["padding"], strict=True)
        ):
            value = self._padded(value, ((0, 1), (0, 1)))  # there nothing but the bias comes out
            extents = tuple(extent + 1 for extent in extents)
        made = self._layers.Conv2DTranspose(
            weight.shape[1],
            attributes["kernel"],
            strides=attributes["stride"],
            use_bias=bias is not None,
            dtype="float32",
            name=self._name(layer),
        )
        result = self._weighted(made, value, weight.transpose(2, 3, 1, 0), bias)
        crops = tuple(
            (padding, (extent - 1) * stride + max(kernel, stride) - padding - wanted)
            for extent, stride, kernel, padding, wanted in zip(
                extents, attributes["stride"], attributes["kernel"], attributes["padding"], layer.shape[1:], strict=True
            )
        )
        return self._layers.Cropping2D(crops, dtype="float32")(result) if crops != _NO_PADS else result

    def _padded(self, value: Value, pads: Pads | tuple[tuple[int, int], ...]) -> Value:
        if all(pair == (0, 0) for pair in pads):
            return value
        return self._layers.ZeroPadding2D(pads, dtype="float32")(value)

    def _max_pool2d(self, layer: Layer, value: Value) -> Value:
        pads = pool_pads(layer, self._network.shape(layer.inputs[0]))
        if pads != _NO_PADS:
            lowest = float(np.finfo(np.float32).min)
            value = self._ops.pad(value, ((0, 0), *pads, (0, 0)), constant_values=lowest)
        return self._window(self._layers.MaxPooling2D, layer, value)

    def _avg_pool2d(self, layer: Layer, value: Value) -> Value:
        """The mean of whole windows, times the share of each that lies inside the image, the other way round."""
        source = self._network.shape(layer.inputs[0])
        pads = pool_pads(layer, source)
        result = self._window(self._layers.AveragePooling2D, layer, self._padded(value, pads))
        if pads == _NO_PADS:
            return result
        shares = [
            _inverse_shares(extent, count, kernel, stride, pair[0])
            for extent, count, kernel, stride, pair in zip(
                source[1:], layer.shape[1:], layer.attributes["kernel"], layer.attributes["stride"], pads, strict=True
            )
        ]
        return result * np.multiply.outer(*shares).astype(np.float32)[None, :, :, None]

    def _window(self, kind: Any, layer: Layer, value: Value) -> Value:
        return kind(layer.attributes["kernel"], layer.attributes["stride"], dtype="float32", name=self._name(layer))(
            value
        )

    def _global_avg_pool2d(self, layer: Layer, value: Value) -> Value:
        return self._layers.GlobalAveragePooling2D(dtype="float32", name=self._name(layer))(value)

    def _global_max_pool2d(self, layer: Layer, value: Value) -> Value:
        return self._layers.GlobalMaxPooling2D(dtype="float32", name=self._name(layer))(value)

    def _affine(self, layer: Layer, value: Value) -> Value:
        scale, shift = (layer.tensors[role].tolist() for role in ("scale", "shift"))
        return self._layers.Rescaling(scale, shift, dtype="float32", name=self._name(layer))(value)

    def _flatten(self, layer: Layer, value: Value) -> Value:
        """Features in the order of the specs: channels first."""
        source = self._network.shape(layer.inputs[0])
        if len(source) == 3 and source[0] > 1 and source[1] * source[2] > 1:
            value = self._layers.Permute((3, 1, 2), dtype="float32")(value)
        return self._layers.Flatten(dtype="float32", name=self._name(layer))(value)

    def _leaky_relu(self, layer: Layer, value: Value) -> Value:
        slope = layer.attributes["slope"]
        return self._layers.LeakyReLU(negative_slope=slope, dtype="float32", name=self._name(layer))(value)

    def _arctanh(self, layer: Layer, value: Value) -> Value:  # noqa: ARG002
        """The arguments and results that the engine allows: nothing becomes infinite."""
        inside = self._ops.clip(value, -_LIMIT, _LIMIT)
        return self._ops.clip(self._ops.arctanh(inside), -ARCTANH_LIMIT, ARCTANH_LIMIT)


def _inverse_shares(extent: int, count: int, kernel: int, stride: int, padding: int) -> NDArray[np.float64]:
    """Along one axis: the size of a window over how much of it lies inside the image."""
    start = np.arange(count) * stride - padding
    inside = np.minimum(start + kernel, extent) - np.maximum(start, 0)
    return np.asarray(kernel / inside, np.float64)


def _plain(name: str, taken: set[str]) -> str:
    """A name that Keras takes and no other layer has: the slash is reserved."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    while plain in taken:
        plain += "_"
    return plain
