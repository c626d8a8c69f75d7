"""JAX: gradients leave the compiled step through an ordered ``io_callback``, which is neither dropped nor repeated.

They are passed one by one: XLA's concatenation on the CPU takes several times as long as copying them in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax as typed_jax
import numpy as np
from jax.experimental import io_callback

from ringlet.comm.contract import Array
from ringlet.keras.exchange import GradientExchange

jax: Any = typed_jax
"""It is typed in part only."""


def exchange(exchange: GradientExchange, gradients: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`."""
    return call(exchange.reduce, gradients)


def call(function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any]) -> list[Any]:
    """See :class:`ringlet.keras.backends.Backend`."""
    results = [jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for tensor in tensors]
    return list(
        io_callback(lambda *arrays: function([np.asarray(array) for array in arrays]), results, *tensors, ordered=True)
    )


def is_symbolic(value: Any) -> bool:
    """See :class:`ringlet.keras.backends.Backend`."""
    return isinstance(value, jax.core.Tracer)


def dense(gradient: Any, variable: Any) -> Any:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`; JAX has no others."""
    return gradient


def settle(tensors: Sequence[Any]) -> None:
    """See :class:`ringlet.keras.backends.Backend`; steps run in the background."""
    jax.block_until_ready(list(tensors))


def are_reduced_elsewhere(variables: Sequence[Any]) -> bool:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`."""
    return False


def check_model(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`."""


def forget_traces(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`; JAX caches traces of a method beyond the function made of it."""
    if model.train_function is not None:
        model.train_function = None
        jax.clear_caches()
