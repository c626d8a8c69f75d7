"""TensorFlow: gradients leave the graph through a stateful ``numpy_function`` on the CPU, which keeps its order.

Concatenating inside the graph is cheap, and the function gets the concatenation's memory itself, so the reduction works
in place and nothing is copied on the way in or out. Collectives for TensorFlow itself: :mod:`ringlet.tensorflow`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tensorflow as tf

from ringlet.comm.contract import Array
from ringlet.keras.exchange import ArgumentError, GradientExchange
from ringlet.named import Reduction

_NODE = "ringlet_exchange_cannot_be_compiled_by_XLA_so_compile_the_model_with_jit_compile_False"
"""XLA's own error shows this name, where the model was not checked before."""


def exchange(exchange: GradientExchange, gradients: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """See :class:`ringlet.keras.backends.Backend`."""
    if exchange.op is Reduction.ADASUM:
        return call(exchange.reduce, gradients)
    indices: dict[Any, list[int]] = {}
    for index, gradient in enumerate(gradients):
        indices.setdefault(gradient.dtype, []).append(index)
    with tf.device("CPU:0"):
        flats = [
            tf.concat([*(tf.reshape(gradients[index], [-1]) for index in group), tf.ones([1], dtype)], 0)
            for dtype, group in indices.items()
        ]
        reduced = _outside(exchange.reduce_flat, flats)
        results: list[Any] = [None] * len(gradients)
        for flat, group in zip(reduced, indices.values(), strict=True):
            sizes = [prod(shapes[index]) for index in group]
            flat.set_shape([sum(sizes) + 1])
            for index, part in zip(group, tf.split(flat, [*sizes, 1]), strict=False):
                results[index] = tf.reshape(part, shapes[index])
    return results


def call(function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any]) -> list[Any]:
    """See :class:`ringlet.keras.backends.Backend`."""
    with tf.device("CPU:0"):
        results = _outside(function, tensors)
    for result, tensor in zip(results, tensors, strict=True):
        result.set_shape(tensor.shape)
    return results


def is_symbolic(value: Any) -> bool:
    """See :class:`ringlet.keras.backends.Backend`."""
    return bool(tf.is_symbolic_tensor(value))


def dense(gradient: Any, variable: Any) -> Any:
    """See :class:`ringlet.keras.backends.Backend`; embeddings give ``IndexedSlices``, which need not know a shape."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
    return tf.convert_to_tensor(gradient)


def settle(tensors: Sequence[Any]) -> None:
    """See :class:`ringlet.keras.backends.Backend`; a training step returns when it has ended."""


def are_reduced_elsewhere(variables: Sequence[Any]) -> bool:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`."""
    return False


def check_model(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`."""
    if model.jit_compile:
        raise ArgumentError(
            "the model was compiled with jit_compile=True, but gradients cannot be exchanged from within what XLA "
            "compiles: expected model.compile(…, jit_compile=False) on the TensorFlow backend"
        )


def forget_traces(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`."""
    model.train_function = None


def _outside(function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any]) -> list[Any]:
    dtypes = [tensor.dtype for tensor in tensors]
    results = tf.numpy_function(
        lambda *arrays: function(list(arrays)), list(tensors), dtypes, stateful=True, name=_NODE
    )
    return list(results) if isinstance(results, list | tuple) else [results]  # a single one has no list when eager
