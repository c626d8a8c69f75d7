"""TensorFlow: one graph for a pass and its gradients; flat buffers go in and come out whole."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import tensorflow as typed_tf
from numpy.typing import NDArray

from ringlet.engines.contract import FlatTensors, Floats
from ringlet.engines.keras.backends import Arrays, Buffers, Infer, Inference, Step, Training

tf: Any = typed_tf
"""It is typed in part only."""


def set_threads(number: int) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    with suppress(RuntimeError):  # it has begun: the number stays
        tf.config.threading.set_intra_op_parallelism_threads(number)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def compile_training(step: Step, buffers: Buffers) -> Training:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    shapes, state_shapes = _shapes(buffers.parameters), _shapes(buffers.state)

    @tf.function(reduce_retracing=True)
    def differentiate(
        parameters: Any, state: Any, images: Any, targets: Any, masks: Any, scale: Any
    ) -> tuple[Any, Any, Any, Any]:
        parts = _split(parameters, shapes)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parts)
            loss, outputs, new_state = step(parts, _split(state, state_shapes), images, targets, masks)
        found = tape.gradient(loss, parts, scale, unconnected_gradients="zero")
        return loss, outputs, _join(new_state, state), _join(found, parameters)

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, scale: float, outputs: Floats) -> float:
        flat, state = buffers.parameters.flat, buffers.state.flat
        factor = np.asarray(scale, flat.dtype)
        loss, result, new_state, found = differentiate(*_tensors(flat, state, images, targets, masks), factor)
        np.copyto(outputs, result.numpy())
        np.copyto(state, new_state.numpy())
        np.copyto(buffers.gradients.flat, found.numpy())
        return float(loss)

    return run


def compile_inference(infer: Infer, buffers: Buffers) -> Inference:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    shapes, state_shapes = _shapes(buffers.parameters), _shapes(buffers.state)

    @tf.function(reduce_retracing=True)
    def compute(parameters: Any, state: Any, images: Any, targets: Any, masks: Any) -> tuple[Any, Any]:
        return infer(_split(parameters, shapes), _split(state, state_shapes), images, targets, masks)

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, outputs: Floats) -> float:
        loss, result = compute(*_tensors(buffers.parameters.flat, buffers.state.flat, images, targets, masks))
        np.copyto(outputs, result.numpy())
        return float(loss)

    return run


def _tensors(*arrays: Any) -> list[Any]:
    """Arrays (and lists of arrays) as tensors: what a graph gets as an array it would compile in as a constant."""
    return [
        [tf.convert_to_tensor(part) for part in array] if isinstance(array, list) else tf.convert_to_tensor(array)
        for array in arrays
    ]


def _shapes(flat: FlatTensors) -> list[tuple[int, ...]]:
    return [view.shape for view in flat.views.values()]


def _split(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The tensors of a flat one. The gradient of a split is a concatenation; that of slices would be a sum of many."""
    if not shapes:
        return []
    parts = tf.split(flat, [prod(shape) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _join(tensors: Sequence[Any], empty: Any) -> Any:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0) if tensors else empty
