"""TensorFlow: one graph for a pass and its gradients; flat buffers go in and come out whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import prod
from typing import Any, final

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


def allow(dtype: np.dtype[Any]) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`; TensorFlow has both."""


def seeded(key: int) -> AbstractContextManager[None]:
    """See :class:`ringlet.engines.keras.backends.Backend`; all of them have a state, which is fed."""
    del key
    return nullcontext()


def compile_training(step: Step, buffers: Buffers) -> Training:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    shapes, state_shapes = _shapes(buffers.parameters), _shapes(buffers.state)

    def differentiate(
        parameters: Any, state: Any, images: Any, targets: Any, masks: Any, scale: Any
    ) -> tuple[Any, Any, Any, Any]:
        parts = _split(parameters, shapes)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parts)
            loss, outputs, new_state = step(parts, _split(state, state_shapes), images, targets, masks)
        found = tape.gradient(loss, parts, scale, unconnected_gradients="zero")
        return loss, outputs, _join(new_state, state), _join(found, parameters)

    graph = _Graph(differentiate)

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, scale: float, outputs: Floats) -> float:
        flat, state = buffers.parameters.flat, buffers.state.flat
        factor = np.asarray(scale, flat.dtype)
        loss, result, new_state, found = graph(flat, state, images, targets, masks, factor)
        np.copyto(outputs, result.numpy())
        np.copyto(state, new_state.numpy())
        np.copyto(buffers.gradients.flat, found.numpy())
        return float(loss)

    return run


def compile_inference(infer: Infer, buffers: Buffers) -> Inference:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    shapes, state_shapes = _shapes(buffers.parameters), _shapes(buffers.state)

    def compute(parameters: Any, state: Any, images: Any, targets: Any, masks: Any) -> tuple[Any, Any]:
        return infer(_split(parameters, shapes), _split(state, state_shapes), images, targets, masks)

    graph = _Graph(compute)

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, outputs: Floats) -> float:
        loss, result = graph(buffers.parameters.flat, buffers.state.flat, images, targets, masks)
        np.copyto(outputs, result.numpy())
        return float(loss)

    return run


@final
class _Graph:
    """A function of arrays and lists of arrays, traced at its first call, for any number of samples."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = tf.function(function)
        self._traced: Callable[..., Any] | None = None

    def __call__(self, *arrays: Any) -> Any:
        if self._traced is None:
            self._traced = self._function.get_concrete_function(*tf.nest.map_structure(_kind, list(arrays)))
        return self._traced(*tf.nest.map_structure(tf.convert_to_tensor, list(arrays)))


def _kind(array: NDArray[Any]) -> Any:
    """What a graph must know of an argument: flat buffers keep their length, all else that has axes counts samples."""
    shape = array.shape if array.ndim < 2 and array.dtype.kind == "f" else (None, *array.shape[1:])
    return tf.TensorSpec(shape, array.dtype)


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
