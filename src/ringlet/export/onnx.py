"""A network as an ONNX model, written node by node: no other framework takes part.

The graph is that of the OpenVINO export: ``images`` (n, H, W, C) of stored values in, ``outputs`` (n, K) or
(n, K, H, W) float32 out, normalisation inside, the description in ``metadata_props``. Half-precision weights are stored
as such and cast by the graph; runtimes do that once, when they load it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.export.network import SMALL, Layer, Network, pool_pads
from ringlet.inference.description import INPUT, KEY, OUTPUT, Description
from ringlet.kernels.contract import ARCTANH_LIMIT
from ringlet.libraries import require

OPSET, IR_VERSION = 17, 8
"""Of 2022: everything needed is there, and every runtime in use reads it."""
_LIMIT = 1 - 2 * float(np.finfo(np.float32).eps)


def build_model(network: Network, description: Description) -> Any:
    """The ``onnx.ModelProto`` of a network."""
    model = _Writer(network, description).model()
    set_description(model, description)
    require("onnx.checker").check_model(model, full_check=True)
    return model


def set_description(model: Any, description: Description) -> None:
    """Let the model carry this description."""
    require("onnx.helper").set_model_props(model, {KEY: description.to_json()})


def save(model: Any, path: Path) -> None:
    """Write the file."""
    require("onnx").save(model, path)


class _Writer:
    """Collects nodes and constants; one method per operation."""

    def __init__(self, network: Network, description: Description) -> None:
        self._helper: Any = require("onnx.helper")
        self._numpy: Any = require("onnx.numpy_helper")
        self._types: Any = require("onnx").TensorProto
        self._network, self._description = network, description
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._names: dict[str, str] = {}

    def model(self) -> Any:
        helper, preprocessing = self._helper, self._description.preprocessing
        kind = self._types.UINT8 if preprocessing.dtype == np.uint8 else self._types.FLOAT
        source = helper.make_tensor_value_info(INPUT, kind, ["n", *preprocessing.graph_shape])
        result = helper.make_tensor_value_info(OUTPUT, self._types.FLOAT, ["n", *self._network.output_shape])
        self._names[self._network.input_name] = self._normalized()
        for layer in self._network.layers:
            self._names[layer.name] = self._written(layer)
        self._node("Identity", [self._names[self._network.layers[-1].name]], OUTPUT)
        graph = helper.make_graph(self._nodes, self._network.name, [source], [result], self._constants)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="ringlet",
            producer_version=self._description.version,
        )

    def _node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(self._helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def _constant(self, values: NDArray[Any], name: str) -> str:
        """The name of a constant; half-precision weights come out of a cast."""
        is_half = self._description.weights == "fp16" and values.dtype == np.float32 and values.size >= SMALL
        stored = f"{name}.half" if is_half else name
        self._constants.append(self._numpy.from_array(values.astype(np.float16) if is_half else values, stored))
        return self._node("Cast", [stored], name, to=self._types.FLOAT) if is_half else stored

    def _normalized(self) -> str:
        """``value * factor + offset`` per channel, rounded as training rounds it, and channels before rows."""
        preprocessing = self._description.preprocessing
        name = INPUT
        if preprocessing.dtype == np.uint8:
            name = self._node("Cast", [name], f"{INPUT}.float", to=self._types.FLOAT)
        if preprocessing.is_image:
            name = self._node("Transpose", [name], f"{INPUT}.channels_first", perm=[0, 3, 1, 2])
        factor, offset = (
            self._constant(_columns(values, preprocessing.input_shape), f"{INPUT}.{role}")
            for role, values in zip(("factor", "offset"), preprocessing.normalization.factors(np.float32), strict=True)
        )
        scaled = self._node("Mul", [name, factor], f"{INPUT}.scaled")
        return self._node("Add", [scaled, offset], f"{INPUT}.normalized")

    def _written(self, layer: Layer) -> str:
        """Write a layer; the name of its output."""
        inputs = [self._names[name] for name in layer.inputs]
        name = f"{layer.name}.output"
        if layer.op in _PLAIN:
            op, attributes = _PLAIN[layer.op]
            return self._node(op, inputs, name, **attributes)
        write: Callable[[Layer, str, str], str] = getattr(self, f"_{layer.op}")
        return write(layer, inputs[0], name)

    def _weights(self, layer: Layer) -> list[str]:
        return [self._constant(layer.tensors[role], f"{layer.name}.{role}") for role in layer.tensors]

    def _dense(self, layer: Layer, source: str, name: str) -> str:
        return self._node("Gemm", [source, *self._weights(layer)], name, transB=1)

    def _conv2d(self, layer: Layer, source: str, name: str) -> str:
        attributes = layer.attributes
        return self._node(
            "Conv",
            [source, *self._weights(layer)],
            name,
            kernel_shape=list(attributes["kernel"]),
            strides=list(attributes["stride"]),
            pads=[*attributes["padding"]] * 2,
            dilations=list(attributes["dilation"]),
            group=attributes["groups"],
        )

    def _conv2d_transpose(self, layer: Layer, source: str, name: str) -> str:
        attributes = layer.attributes
        return self._node(
            "ConvTranspose",
            [source, *self._weights(layer)],
            name,
            kernel_shape=list(attributes["kernel"]),
            strides=list(attributes["stride"]),
            pads=[*attributes["padding"]] * 2,
            output_padding=list(attributes["output_padding"]),
        )

    def _window(self, layer: Layer) -> dict[str, Any]:
        rows, columns = pool_pads(layer, self._network.shape(layer.inputs[0]))
        return {
            "kernel_shape": list(layer.attributes["kernel"]),
            "strides": list(layer.attributes["stride"]),
            "pads": [rows[0], columns[0], rows[1], columns[1]],
        }

    def _max_pool2d(self, layer: Layer, source: str, name: str) -> str:
        return self._node("MaxPool", [source], name, **self._window(layer))

    def _avg_pool2d(self, layer: Layer, source: str, name: str) -> str:
        return self._node("AveragePool", [source], name, count_include_pad=0, **self._window(layer))

    def _global_avg_pool2d(self, layer: Layer, source: str, name: str) -> str:
        pooled = self._node("GlobalAveragePool", [source], f"{layer.name}.pooled")
        return self._node("Flatten", [pooled], name)

    def _global_max_pool2d(self, layer: Layer, source: str, name: str) -> str:
        pooled = self._node("GlobalMaxPool", [source], f"{layer.name}.pooled")
        return self._node("Flatten", [pooled], name)

    def _affine(self, layer: Layer, source: str, name: str) -> str:
        scale, shift = (
            self._constant(_columns(layer.tensors[role], layer.shape), f"{layer.name}.{role}")
            for role in ("scale", "shift")
        )
        scaled = self._node("Mul", [source, scale], f"{layer.name}.scaled")
        return self._node("Add", [scaled, shift], name)

    def _leaky_relu(self, layer: Layer, source: str, name: str) -> str:
        return self._node("LeakyRelu", [source], name, alpha=layer.attributes["slope"])

    def _relu6(self, layer: Layer, source: str, name: str) -> str:
        return self._clipped(source, name, 0.0, 6.0, layer.name)

    def _arctanh(self, layer: Layer, source: str, name: str) -> str:
        """The arguments and results that the engine allows: nothing becomes infinite."""
        inside = self._clipped(source, f"{layer.name}.inside", -_LIMIT, _LIMIT, f"{layer.name}.arguments")
        free = self._node("Atanh", [inside], f"{layer.name}.free")
        return self._clipped(free, name, -ARCTANH_LIMIT, ARCTANH_LIMIT, f"{layer.name}.results")

    def _log_sigmoid(self, layer: Layer, source: str, name: str) -> str:
        negative = self._node("Neg", [source], f"{layer.name}.negative")
        return self._node("Neg", [self._node("Softplus", [negative], f"{layer.name}.softplus")], name)

    def _clipped(self, source: str, name: str, low: float, high: float, prefix: str) -> str:
        ends = [
            self._constant(np.array(value, np.float32), f"{prefix}.{end}")
            for end, value in (("low", low), ("high", high))
        ]
        return self._node("Clip", [source, *ends], name)


def _columns(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return values.reshape(1, -1, *[1] * (len(shape) - 1))


_PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "softmax": ("Softmax", {"axis": 1}),
    "flatten": ("Flatten", {}),
    "add": ("Sum", {}),
    "concat": ("Concat", {"axis": 1}),
}
"""Operations that are one node of ONNX without constants."""
