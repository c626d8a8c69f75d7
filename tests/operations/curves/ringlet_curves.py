"""Two activations of another package, whole: what Ringlet knows of its own ones, and a network that uses both."""

from __future__ import annotations

import numpy as np

from ringlet.component import option
from ringlet.models.builder import apply, build, conv2d, dense, flatten, image_input, softmax
from ringlet.models.zoo import Member, NetworkOptions
from ringlet.operations import Activation
from ringlet.operations.attributes import real

SOFTPLUS = Activation(
    "softplus",
    lambda x, _: np.logaddexp(x, 0),
    lambda y, _: -np.expm1(-y),
    torch_text="functional.softplus({x})",
    keras_layer="softplus",
    onnx_node="Softplus",
    openvino_node="softplus",
)


def _gate(x, own):
    return (1 + np.tanh(own["beta"] * x / 2)) / 2


def _onnx_swish(writer, layer, x, name):
    beta = writer.constant(np.array(layer.attributes["beta"], np.float32), f"{layer.name}.beta")
    steep = writer.node("Mul", [x, beta], f"{layer.name}.steep")
    return writer.node("Mul", [x, writer.node("Sigmoid", [steep], f"{layer.name}.gate")], name)


SWISH = Activation(
    "swish",
    lambda x, own: x * _gate(x, own),
    lambda x, own: _gate(x, own) * (1 + own["beta"] * x * (1 - _gate(x, own))),
    reads_input=True,
    torch_text="{x} * torch.sigmoid({beta!r} * {x})",
    keras_layer=lambda writer, layer, x: x * writer.keras.ops.sigmoid(layer.attributes["beta"] * x),
    keras_classes=("Multiply", "Sigmoid"),
    onnx_node=_onnx_swish,
    openvino_node=lambda ops, x, own: ops.swish(x, ops.constant(np.array(own["beta"], np.float32))),
    attributes={"beta": real(0, 10, above=True)},
)

WRONG = SOFTPLUS


def curvy(name, input_shape, num_classes, *, width):
    """A convolution and a dense layer, each with one of the two."""
    x = apply("swish", conv2d(image_input(input_shape), width, kernel=3), beta=1.5)
    x = apply("softplus", dense(flatten(x), 2 * width))
    return build(name, softmax(dense(x, num_classes)))


class CurvyOptions(NetworkOptions):
    """What users may change."""

    width: int = option(4, "filters", ge=1)


CURVY = Member("curvy", curvy, "two activations of a plugin", (1, 8, 8), 10, options=CurvyOptions())
