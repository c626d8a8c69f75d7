"""TensorFlow: gradients leave the graph through a stateful ``numpy_function`` on the CPU, which keeps its order.

Concatenating inside the graph is cheap, and the function gets the concatenation's memory itself, so the reduction works
in place and nothing is copied on the way in or out. For training loops of one's own there is ``tf.GradientTape`` with
gradients of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from types import TracebackType
from typing import Any, Self, final

import tensorflow as tf

from ringlet.comm.contract import Array
from ringlet.keras.exchange import ArgumentError, Compression, GradientExchange
from ringlet.keras.optimizer import make_exchange, reduced
from ringlet.named import ProcessSet, Reduction
from ringlet.named.horovod import Compressor

_NODE = "ringlet_exchange_cannot_be_compiled_by_XLA_so_compile_the_model_with_jit_compile_False"
"""XLA's own error shows this name, where the model was not checked before."""


def exchange(exchange: GradientExchange, gradients: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """See :class:`ringlet.keras.backends.Backend`."""
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


def dense(gradient: Any) -> Any:
    """See :class:`ringlet.keras.backends.Backend`; embeddings give ``IndexedSlices``."""
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


@final
class DistributedGradientTape:
    """Does what ``tape`` does; :meth:`gradient` gives the average (or sum) over all ranks.

    The arguments are those of :func:`~ringlet.keras.DistributedOptimizer`. Every rank must ask for the same gradients.
    """

    def __init__(
        self,
        tape: Any,
        device_dense: str = "",  # noqa: ARG002  as Horovod has it: there is one way from ranks to ranks
        device_sparse: str = "",  # noqa: ARG002
        compression: type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,  # noqa: ARG002  sparse gradients always become dense
        op: Reduction = Reduction.AVERAGE,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,  # noqa: ARG002
        groups: Any = None,  # noqa: ARG002
        process_set: ProcessSet | None = None,
    ) -> None:
        self._tape = tape
        self._exchange = make_exchange("ringlet.keras.tape", op, compression, gradient_predivide_factor, process_set)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        """The gradients of ``target`` on all ranks, in the structure of ``sources``; missing ones are zeros."""
        flat: Sequence[Any] = tf.nest.flatten(sources)
        found = self._tape.gradient(target, flat, output_gradients, **options)
        dense = [
            tf.zeros_like(source) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, source in zip(found, flat, strict=True)
        ]
        return tf.nest.pack_sequence_as(sources, reduced(self._exchange, dense, flat))

    def __enter__(self) -> Self:
        self._tape.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tape.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)
