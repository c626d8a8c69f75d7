"""Functions of each element: an :class:`Activation` says in a few lines what one is everywhere.

Compiled kernels know some of them by name (``native/activations.hpp``, a line each); the others are computed by their
NumPy functions. Those take exponentials of numbers that are not positive, so nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import ARCTANH_LIMIT, RELU, Elementwise, Floats
from ringlet.operations.attributes import Check, real
from ringlet.operations.base import Attributes, ElementOperation, Layer
from ringlet.operations.native import ComputingNode, Emitter, Needs
from ringlet.operations.writers import KerasWriter, OnnxWriter, OpenVinoWriter, Value


@final
class ActivationNode(ComputingNode):
    """``y = f(x)``; where the derivative is computed from y, y may overwrite x."""

    def needs(self) -> Needs:
        """What the derivative reads."""
        if self._function().reads_input:
            return Needs(input_in_backward=True)
        return Needs(output_in_backward=True, overwritable=self.inputs)

    def forward(self, emit: Emitter) -> None:
        """One call."""
        emit.call("activation_forward", self._function(), emit.values[self.inputs[0]], emit.values[self.output])

    def backward(self, emit: Emitter) -> None:
        """One call, in place where no one else waits for the output's gradient."""
        function, dy = self._function(), emit.gradient(self.output)
        if (target := emit.target(self.inputs[0], reuse=self.output)) is not None:
            dx, accumulate = target
            value = emit.values[self.inputs[0] if function.reads_input else self.output]
            emit.call("activation_backward", function, value, dy, dx, accumulate=accumulate)

    def _function(self) -> Elementwise:
        operation = self.fused.operation
        assert isinstance(operation, Activation), operation.name
        return operation.elementwise(self.fused.attributes)


@final
@dataclass(frozen=True)
class Activation(ElementOperation):
    """``y = f(x)`` for each element.

    ``function`` and ``derivative`` take an array and the attributes; the derivative is one of ``y``, or of ``x`` with
    ``reads_input``. Padding lanes hold anything finite, and so must their results. For PyTorch it is an expression with
    ``{x}`` and the attributes by name; for Keras the name of an activation, or a function of (writer, layer, value)
    that makes ``keras_classes``; for ONNX the name of a node, or a function of (writer, layer, input, output); for
    OpenVINO the name of a function, or a function of (operations, value, attributes).
    """

    name: str
    function: Callable[[Floats, Attributes], NDArray[Any]]
    derivative: Callable[[Floats, Attributes], NDArray[Any]]
    torch_text: str
    keras_layer: str | Callable[[KerasWriter, Layer, Value], Value]
    onnx_node: str | Callable[[OnnxWriter, Layer, str, str], str]
    openvino_node: str | Callable[[Any, Value, Attributes], Value]
    keras_classes: tuple[str, ...] = ("Activation",)
    attributes: Mapping[str, Check] = field(default_factory=dict)
    reads_input: bool = False
    title: str = ""
    rectifies: bool = False
    node = ActivationNode
    is_activation = True

    def elementwise(self, attributes: Attributes) -> Elementwise:
        """What kernels compute; the one attribute that compiled ones take is ``slope``."""
        if self.rectifies:
            return RELU
        return Elementwise(
            self.name,
            lambda x: self.function(x, attributes),
            lambda value: self.derivative(value, attributes),
            float(attributes.get("slope", 0.0)),
            self.reads_input,
        )

    def torch(self, layer: Layer, names: Sequence[str]) -> str:
        """The expression."""
        return self.torch_text.format(x=names[0], **layer.attributes)

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A layer or what the function makes."""
        if isinstance(self.keras_layer, str):
            return writer.keras.layers.Activation(self.keras_layer, **writer.options(layer))(inputs[0])
        return self.keras_layer(writer, layer, inputs[0])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """A node or those that the function adds."""
        if isinstance(self.onnx_node, str):
            return writer.node(self.onnx_node, inputs, name)
        return self.onnx_node(writer, layer, inputs[0], name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A node or those that the function adds."""
        if isinstance(self.openvino_node, str):
            return getattr(writer.ops, self.openvino_node)(inputs[0])
        return self.openvino_node(writer.ops, inputs[0], layer.attributes)


# -- rectifiers -------------------------------------------------------------------------------------------------------
_RELU = Activation(
    "relu",
    lambda x, _: RELU.function(x),
    lambda y, _: RELU.derivative(y),
    torch_text="functional.relu({x})",
    keras_layer="relu",
    onnx_node="Relu",
    openvino_node="relu",
    rectifies=True,
)
_LEAKY_RELU = Activation(
    "leaky_relu",
    lambda x, own: np.where(x > 0, x, own["slope"] * x),
    lambda y, own: np.where(y > 0, 1, own["slope"]).astype(y.dtype),
    torch_text="functional.leaky_relu({x}, {slope!r})",
    keras_layer=lambda writer, layer, x: writer.keras.layers.LeakyReLU(
        negative_slope=layer.attributes["slope"], **writer.options(layer)
    )(x),
    onnx_node=lambda writer, layer, x, name: writer.node("LeakyRelu", [x], name, alpha=layer.attributes["slope"]),
    openvino_node=lambda ops, x, own: ops.prelu(x, ops.constant(np.array([own["slope"]], np.float32))),
    keras_classes=("LeakyReLU",),
    attributes={"slope": real(0, 1)},
    title="LeakyRelu",
)
_RELU6 = Activation(
    "relu6",
    lambda x, _: np.clip(x, 0, 6),
    lambda y, _: (y > 0) & (y < 6),
    torch_text="functional.relu6({x})",
    keras_layer="relu6",
    onnx_node=lambda writer, layer, x, name: writer.clip(x, name, 0.0, 6.0, layer.name),
    openvino_node=lambda ops, x, _: ops.clamp(x, 0.0, 6.0),
)


# -- of the exponential -----------------------------------------------------------------------------------------------
def _sigmoid(x: Floats, _: Attributes) -> NDArray[Any]:
    """``1 / (1 + exp(-x))``, as ``exp(x) / (1 + exp(x))`` on the negative side."""
    exponential = np.exp(-np.abs(x))
    sigmoid: NDArray[Any] = np.where(x >= 0, 1, exponential) / (1 + exponential)
    return sigmoid


_SIGMOID = Activation(
    "sigmoid",
    _sigmoid,
    lambda y, _: y * (1 - y),
    torch_text="torch.sigmoid({x})",
    keras_layer="sigmoid",
    onnx_node="Sigmoid",
    openvino_node="sigmoid",
)
_TANH = Activation(
    "tanh",
    lambda x, _: np.tanh(x),
    lambda y, _: 1 - y * y,
    torch_text="torch.tanh({x})",
    keras_layer="tanh",
    onnx_node="Tanh",
    openvino_node="tanh",
)


def _onnx_log_sigmoid(writer: OnnxWriter, layer: Layer, x: str, name: str) -> str:
    negative = writer.node("Neg", [x], f"{layer.name}.negative")
    return writer.node("Neg", [writer.node("Softplus", [negative], f"{layer.name}.softplus")], name)


_LOG_SIGMOID = Activation(
    "log_sigmoid",
    lambda x, _: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    lambda y, _: -np.expm1(y),  # 1 - sigmoid(x), and exp(y) = sigmoid(x)
    torch_text="functional.logsigmoid({x})",
    keras_layer="log_sigmoid",
    onnx_node=_onnx_log_sigmoid,
    openvino_node=lambda ops, x, _: ops.negative(ops.softplus(ops.negative(x))),
    title="LogSigmoid",
)


# -- arctanh: arguments and results are limited, so that nothing becomes infinite -------------------------------------
_LIMIT = 1 - 2 * float(np.finfo(np.float32).eps)


def _arctanh(x: Floats, _: Attributes) -> NDArray[Any]:
    below_one = 1 - 2 * np.finfo(x.dtype).eps
    return np.clip(np.arctanh(np.clip(x, -below_one, below_one)), -ARCTANH_LIMIT, ARCTANH_LIMIT)


def _onnx_arctanh(writer: OnnxWriter, layer: Layer, x: str, name: str) -> str:
    inside = writer.clip(x, f"{layer.name}.inside", -_LIMIT, _LIMIT, f"{layer.name}.arguments")
    free = writer.node("Atanh", [inside], f"{layer.name}.free")
    return writer.clip(free, name, -ARCTANH_LIMIT, ARCTANH_LIMIT, f"{layer.name}.results")


def _keras_arctanh(writer: KerasWriter, _: Layer, x: Value) -> Value:
    ops = writer.keras.ops
    return ops.clip(ops.arctanh(ops.clip(x, -_LIMIT, _LIMIT)), -ARCTANH_LIMIT, ARCTANH_LIMIT)


_ARCTANH = Activation(
    "arctanh",
    _arctanh,
    lambda y, _: np.where(np.abs(y) < ARCTANH_LIMIT, np.cosh(y) ** 2, 0),  # 1 / (1 - x²) = cosh²(y)
    torch_text=f"{{x}}.clamp({-_LIMIT!r}, {_LIMIT!r}).atanh().clamp({-ARCTANH_LIMIT}, {ARCTANH_LIMIT})",
    keras_layer=_keras_arctanh,
    keras_classes=("Arctanh", "Clip"),
    onnx_node=_onnx_arctanh,
    openvino_node=lambda ops, x, _: ops.clamp(ops.atanh(ops.clamp(x, -_LIMIT, _LIMIT)), -ARCTANH_LIMIT, ARCTANH_LIMIT),
)

OPERATIONS = (_RELU, _RELU6, _SIGMOID, _TANH, _ARCTANH, _LOG_SIGMOID, _LEAKY_RELU)
