"""JAX: a pass and its gradients are one jitted function, compiled for every number of samples that comes.

Tensors go in and come out one by one: XLA's concatenation on the processor takes longer than copying them in NumPy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax as typed_jax
import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import FlatTensors, Floats
from ringlet.engines.keras.backends import Arrays, Buffers, Infer, Inference, Step, Training

jax: Any = typed_jax
"""It is typed in part only."""


def set_threads(number: int) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`; JAX looks for it when it computes for the first time."""
    os.environ.setdefault("PJRT_NPROC", str(number))


def allow(dtype: np.dtype[Any]) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`; for float64 the whole process must be switched."""
    if dtype == np.float64:
        jax.config.update("jax_enable_x64", True)


def seeded(key: int) -> AbstractContextManager[None]:
    """See :class:`ringlet.engines.keras.backends.Backend`; all of them have a state, which is fed."""
    del key
    return nullcontext()


def compile_training(step: Step, buffers: Buffers) -> Training:
    """See :class:`ringlet.engines.keras.backends.Backend`."""

    def scaled(parameters: Any, state: Any, images: Any, targets: Any, masks: Any, scale: Any) -> tuple[Any, Any]:
        loss, outputs, new_state = step(parameters, state, images, targets, masks)
        return loss * scale, (loss, outputs, new_state)

    differentiate = jax.jit(jax.grad(scaled, has_aux=True))

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, scale: float, outputs: Floats) -> float:
        factor = np.asarray(scale, outputs.dtype)
        found, (loss, result, new_state) = differentiate(
            _arrays(buffers.parameters), _arrays(buffers.state), images, targets, list(masks), factor
        )
        np.copyto(outputs, result)
        _fill(buffers.gradients, found)
        _fill(buffers.state, new_state)
        return float(loss)

    return run


def compile_inference(infer: Infer, buffers: Buffers) -> Inference:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    compute = jax.jit(infer)

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, outputs: Floats) -> float:
        loss, result = compute(_arrays(buffers.parameters), _arrays(buffers.state), images, targets, list(masks))
        np.copyto(outputs, result)
        return float(loss)

    return run


def _arrays(flat: FlatTensors) -> list[Any]:
    return list(flat.views.values())


def _fill(flat: FlatTensors, values: Iterable[Any]) -> None:
    for view, value in zip(flat.views.values(), values, strict=True):
        np.copyto(view, value)
