"""Batch normalisation: by the batch's statistics while training, by running ones otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.bfloat16 import parameter_dtype
from ringlet.kernels.contract import RELU, Floats
from ringlet.operations.attributes import Shape, real
from ringlet.operations.base import Attributes, ChannelOperation, Layer, Shapes, TensorRule
from ringlet.operations.native import ComputingNode, Emitter, Needs, Tensor
from ringlet.operations.writers import KerasWriter, OnnxWriter, OpenVinoWriter, Value, per_channel


@final
class BatchNormNode(ComputingNode):
    """Statistics of the batch while training, running ones otherwise; ReLU on top if fused."""

    def needs(self) -> Needs:
        """The backward pass reads x, and y for the ReLU's mask; inference may overwrite x."""
        if self.training:
            return Needs(input_in_backward=True, output_in_backward=self.relu)
        return Needs(overwritable=self.inputs)

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        affine = self.parameter(emit, "scale"), self.parameter(emit, "shift")
        running = self._state(emit, "running_mean"), self._state(emit, "running_var")
        options = {"epsilon": float(self.attribute("epsilon")), "relu": self.relu}
        if self.training:
            options["momentum"] = float(self.attribute("momentum"))
            emit.call("batch_norm_forward_train", x, *affine, y, *self._statistics(emit), *running, **options)
        else:
            emit.call("batch_norm_forward_infer", x, *affine, *running, y, **options)

    def backward(self, emit: Emitter) -> None:
        """One call; the kernel always writes the input's gradient, needed or not."""
        x, y, dy = emit.values[self.inputs[0]], emit.values[self.output], emit.gradient(self.output)
        relu = self.relu and self.output not in emit.rectified
        # Without a ReLU the kernel does not look at y: passing x lets y's memory go early.
        y = y if relu else x
        dx, accumulate = emit.target(self.inputs[0], reuse=self.output) or (emit.like(self.inputs[0]), False)
        read = x, y, self.parameter(emit, "scale"), dy, *self._statistics(emit)
        written = dx, self.parameter_gradient(emit, "scale"), self.parameter_gradient(emit, "shift")
        emit.call("batch_norm_backward", *read, *written, relu=relu, accumulate=accumulate)

    def _statistics(self, emit: Emitter) -> tuple[Tensor, Tensor]:
        shape, dtype = (self.shapes[self.output][0],), parameter_dtype(emit.dtype)
        return emit.saved(self.output, "mean", shape, dtype), emit.saved(self.output, "inv_std", shape, dtype)

    def _state(self, emit: Emitter, role: str) -> Floats:
        return emit.state[f"{self.fused.name}.{role}"]


@final
class FrozenBatchNormNode(ComputingNode):
    """Running statistics in training too: an affine map of each channel, of which nothing is learned."""

    def needs(self) -> Needs:
        """The backward pass reads y for the ReLU's mask."""
        return Needs(output_in_backward=self.relu)

    def forward(self, emit: Emitter) -> None:
        """As in inference."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        affine = self.parameter(emit, "scale"), self.parameter(emit, "shift")
        running = (emit.state[f"{self.fused.name}.{role}"] for role in ("running_mean", "running_var"))
        options = {"epsilon": float(self.attribute("epsilon")), "relu": self.relu}
        emit.call("batch_norm_forward_infer", x, *affine, *running, y, **options)

    def backward(self, emit: Emitter) -> None:
        """The same map without its offsets, of the gradient."""
        if self.inputs[0] not in emit.trainable:
            return
        dy = emit.gradient(self.output)
        if self.relu and self.output not in emit.rectified:
            masked = emit.writable_gradient(self.output)
            emit.call("activation_backward", RELU, emit.values[self.output], dy, masked, accumulate=False)
            dy = masked
        scale, variance = self.parameter(emit, "scale"), emit.state[f"{self.fused.name}.running_var"]
        nothing, dx = np.zeros_like(scale), emit.like(self.inputs[0])
        options = {"epsilon": float(self.attribute("epsilon")), "relu": False}
        emit.call("batch_norm_forward_infer", dy, scale, nothing, nothing, variance, dx, **options)
        emit.contribute(self.inputs[0], dx)


def torch_batch_norm(torch: Any, x: Any, statistics: Any, affine: Any, training: bool, numbers: Any) -> Any:
    """PyTorch's, but a single value per channel has a variance: zero.

    ``statistics``: running mean and variance; ``affine``: scale and shift; ``numbers``: momentum, which is the share of
    the old value, and epsilon.
    """
    running_mean, running_var = statistics
    momentum, epsilon = numbers
    if training and x.numel() == x.shape[1]:
        kept = running_var
        running_var = kept.clone()
        kept.mul_(momentum)
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(x, *affine, running_mean, running_var, training, 1 - momentum, epsilon, cudnn)


@cache
def _keras_layer(keras: Any) -> Any:
    """The layer of Keras that the engine trains with."""

    @final
    class BatchNorm(keras.layers.Layer):  # type: ignore[misc]
        """Batch normalisation over all axes but ``axis``, that of the channels.

        As the native engine and PyTorch, and unlike Keras' own layer, it keeps the unbiased variance of the batch as
        running statistic, and it computes the variance from differences to the mean, which rounds better.
        """

        def __init__(self, momentum: float, epsilon: float, axis: int, learns: bool, **options: Any) -> None:
            super().__init__(**options)
            self._momentum, self._epsilon, self._axis, self._learns = momentum, epsilon, axis, learns

        def build(self, input_shape: Any) -> None:
            """Four tensors with a number for each channel, which mixed precision leaves as they are."""
            options: dict[str, Any] = {"shape": (input_shape[self._axis],), "autocast": False}
            self.scale = self.add_weight(name="scale", initializer="ones", **options)
            self.shift = self.add_weight(name="shift", initializer="zeros", **options)
            self.running_mean = self.add_weight(name="running_mean", initializer="zeros", trainable=False, **options)
            self.running_var = self.add_weight(name="running_var", initializer="ones", trainable=False, **options)

        def call(self, value: Any, training: bool = False) -> Any:
            """Normalise by the batch, or by the running statistics."""
            ops, rank = keras.ops, len(value.shape)
            value = ops.cast(value, self.variable_dtype)
            mean, variance = self.running_mean, self.running_var
            shape = [1] * rank
            shape[self._axis] = -1
            if training and self._learns:
                axes = tuple(axis for axis in range(rank) if axis != self._axis % rank)
                count = ops.prod(ops.cast(ops.stack([ops.shape(value)[axis] for axis in axes]), value.dtype))
                mean = ops.sum(value, axes) / count  # Keras' own mean may be one of float32
                variance = ops.sum(ops.square(value - ops.reshape(mean, shape)), axes) / count
                self._follow(count, mean, variance)
            factor = self.scale * ops.rsqrt(variance + self._epsilon)
            centred = (value - ops.reshape(mean, shape)) * ops.reshape(factor, shape)
            return ops.cast(centred + ops.reshape(self.shift, shape), self.compute_dtype)

        def _follow(self, count: Any, mean: Any, variance: Any) -> None:
            ops, share = keras.ops, 1 - self._momentum
            unbiased = variance * (count / ops.maximum(count - 1, 1))
            for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                running.assign(self._momentum * running + share * ops.stop_gradient(new))

    return BatchNorm


@final
class BatchNorm(ChannelOperation):
    """``y = scale * (x - mean) / sqrt(var + epsilon) + shift`` per channel."""

    name = "batch_norm"
    prefix = "norm"
    title = "BatchNorm"
    attributes = {"momentum": real(0, 1, below=True), "epsilon": real(0, 1, above=True)}
    node = BatchNormNode
    frozen_node = FrozenBatchNormNode
    takes_relu = True
    keras_classes = ("Rescaling",)
    torch_helpers = {"batch_norm": torch_batch_norm}

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """That of the input."""
        return inputs[0]

    def tensors(self, attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:  # noqa: ARG002
        """Two parameters and two statistics, a number for each channel."""
        shape = inputs[0][:1]
        return (
            TensorRule("scale", shape, "ones"),
            TensorRule("shift", shape, "zeros"),
            TensorRule("running_mean", shape, "zeros"),
            TensorRule("running_var", shape, "ones"),
        )

    def flops(self, attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG002
        """One for each element."""
        return prod(inputs[0])

    def affine(
        self, attributes: Attributes, tensors: Mapping[str, NDArray[Any]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``f * x + (shift - f * mean)`` with ``f = scale / sqrt(var + epsilon)``."""
        roles = ("scale", "shift", "running_mean", "running_var")
        scale, shift, mean, variance = (tensors[role].astype(np.float64) for role in roles)
        factor = scale / np.sqrt(variance + attributes["epsilon"])
        return factor, shift - factor * mean

    def torch(self, layer: Layer, names: Sequence[str]) -> str:
        """The affine map."""
        return f"{names[0]} * {layer.tensors['scale']} + {layer.tensors['shift']}"

    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:
        """See :func:`torch_batch_norm`."""
        own = layer.tensors
        statistics, affine = f"({own['running_mean']}, {own['running_var']})", f"({own['scale']}, {own['shift']})"
        numbers = f"({layer.attributes['momentum']!r}, {layer.attributes['epsilon']!r})"
        training = "training" if layer.learns else "False"
        return f"batch_norm(torch, {names[0]}, {statistics}, {affine}, {training}, {numbers})"

    def torch_module(self, layer: Layer) -> str:  # noqa: ARG002
        """None: scale and shift are buffers."""
        return ""

    def keras(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """``Rescaling``."""
        scale, shift = (layer.tensors[role].tolist() for role in ("scale", "shift"))
        return writer.keras.layers.Rescaling(scale, shift, **writer.options(layer))(inputs[0])

    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A layer of our own."""
        numbers = layer.attributes["momentum"], layer.attributes["epsilon"]
        made = _keras_layer(writer.keras)(*numbers, writer.axis, layer.learns, **writer.options(layer))
        return writer.owned(layer, made, None, inputs[0])

    def onnx(self, writer: OnnxWriter, layer: Layer, inputs: Sequence[str], name: str) -> str:
        """A product and a sum."""
        constants = {role: per_channel(values, layer.shape) for role, values in layer.tensors.items()}
        return writer.affine(inputs[0], constants, layer.name, name)

    def openvino(self, writer: OpenVinoWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A product and a sum."""
        scale, shift = (writer.per_channel(layer.tensors[role], layer.shape) for role in ("scale", "shift"))
        return writer.ops.add(writer.ops.multiply(inputs[0], scale), shift)


OPERATIONS = (BatchNorm(),)
