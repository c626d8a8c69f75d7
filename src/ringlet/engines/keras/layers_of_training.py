"""Layers that behave otherwise in training, by the definitions of the native engine's kernels."""

from __future__ import annotations

from typing import Any, final

import keras as typed_keras

keras: Any = typed_keras
"""It comes without types."""


@final
class BatchNorm(keras.layers.Layer):
    """Batch normalisation over all axes but ``axis``, that of the channels.

    As the native engine and PyTorch, and unlike Keras' own layer, it keeps the unbiased variance of the batch as
    running statistic, and it computes the variance from differences to the mean, which rounds better.
    """

    def __init__(self, momentum: float, epsilon: float, axis: int, **options: Any) -> None:
        super().__init__(**options)
        self._momentum, self._epsilon, self._axis = momentum, epsilon, axis

    def build(self, input_shape: Any) -> None:
        """Four tensors with a number for each channel."""
        shape = (input_shape[self._axis],)
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")
        self.shift = self.add_weight(name="shift", shape=shape, initializer="zeros")
        self.running_mean = self.add_weight(name="running_mean", shape=shape, initializer="zeros", trainable=False)
        self.running_var = self.add_weight(name="running_var", shape=shape, initializer="ones", trainable=False)

    def call(self, value: Any, training: bool = False) -> Any:
        """Normalise by the batch, or by the running statistics."""
        ops, rank = keras.ops, len(value.shape)
        mean, variance = self.running_mean, self.running_var
        shape = [1] * rank
        shape[self._axis] = -1
        if training:
            axes = tuple(axis for axis in range(rank) if axis != self._axis % rank)
            count = ops.prod(ops.cast(ops.stack([ops.shape(value)[axis] for axis in axes]), value.dtype))
            mean = ops.sum(value, axes) / count  # Keras' own mean may be one of float32
            variance = ops.sum(ops.square(value - ops.reshape(mean, shape)), axes) / count
            self._follow(count, mean, variance)
        factor = self.scale * ops.rsqrt(variance + self._epsilon)
        return (value - ops.reshape(mean, shape)) * ops.reshape(factor, shape) + ops.reshape(self.shift, shape)

    def _follow(self, count: Any, mean: Any, variance: Any) -> None:
        ops, share = keras.ops, 1 - self._momentum
        unbiased = variance * (count / ops.maximum(count - 1, 1))
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.assign(self._momentum * running + share * ops.stop_gradient(new))


@final
class FedDropout(keras.layers.Layer):
    """Dropout with factors that are fed in, channels first; in inference it does nothing."""

    def __init__(self, axis: int, **options: Any) -> None:
        super().__init__(**options)
        self._axis = axis

    def call(self, value: Any, factors: Any, training: bool = False) -> Any:
        """The product in training."""
        if not training:
            return value
        return value * (factors if len(value.shape) == 2 else keras.ops.moveaxis(factors, 1, self._axis))
