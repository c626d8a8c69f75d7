"""Layers that behave otherwise in training, by the definitions of the native engine's kernels."""

from __future__ import annotations

from typing import Any, final

import keras as typed_keras

keras: Any = typed_keras
"""It comes without types."""


@final
class BatchNorm(keras.layers.Layer):
    """Batch normalisation over all axes but the last.

    As the native engine and PyTorch, and unlike Keras' own layer, it keeps the unbiased variance of the batch as
    running statistic, and it computes the variance from differences to the mean, which rounds better.
    """

    def __init__(self, momentum: float, epsilon: float, **options: Any) -> None:
        super().__init__(**options)
        self._momentum, self._epsilon = momentum, epsilon

    def build(self, input_shape: Any) -> None:
        """Four tensors with a number for each channel."""
        shape = (input_shape[-1],)
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")
        self.shift = self.add_weight(name="shift", shape=shape, initializer="zeros")
        self.running_mean = self.add_weight(name="running_mean", shape=shape, initializer="zeros", trainable=False)
        self.running_var = self.add_weight(name="running_var", shape=shape, initializer="ones", trainable=False)

    def call(self, value: Any, training: bool = False) -> Any:
        """Normalise by the batch, or by the running statistics."""
        ops = keras.ops
        if not training:
            factor = self.scale * ops.rsqrt(self.running_var + self._epsilon)
            return (value - self.running_mean) * factor + self.shift
        axes = tuple(range(len(value.shape) - 1))
        mean = ops.mean(value, axes)
        centred = value - mean
        variance = ops.mean(ops.square(centred), axes)
        self._follow(value, mean, variance)
        return centred * (self.scale * ops.rsqrt(variance + self._epsilon)) + self.shift

    def _follow(self, value: Any, mean: Any, variance: Any) -> None:
        ops, share = keras.ops, 1 - self._momentum
        count = ops.cast(ops.prod(ops.shape(value)[:-1]), variance.dtype)
        unbiased = variance * (count / ops.maximum(count - 1, 1))
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.assign(self._momentum * running + share * ops.stop_gradient(new))


@final
class FedDropout(keras.layers.Layer):
    """Dropout with factors that are fed in, channels first; in inference it does nothing."""

    def call(self, value: Any, factors: Any, training: bool = False) -> Any:
        """The product in training."""
        if not training:
            return value
        return value * (keras.ops.transpose(factors, (0, 2, 3, 1)) if len(value.shape) == 4 else factors)
