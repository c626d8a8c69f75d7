"""How each backend of Keras compiles a pass and differentiates it: one module for each, with the same functions.

All take and fill NumPy arrays; what is copied on the way is each backend's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, cast

import keras
import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import FlatTensors, Floats

Arrays = Sequence[NDArray[Any]]

Step = Callable[[Sequence[Any], Sequence[Any], Any, Any, Sequence[Any]], tuple[Any, Any, Sequence[Any]]]
"""``step(parameters, state, images, targets, masks)``, tensors of the backend, gives loss, outputs and new state."""

Infer = Callable[[Sequence[Any], Sequence[Any], Any, Any, Sequence[Any]], tuple[Any, Any]]
"""The same in inference mode: gives loss and outputs."""


@dataclass(frozen=True)
class Buffers:
    """The flat buffers of a replica."""

    parameters: FlatTensors
    gradients: FlatTensors
    state: FlatTensors


Training = Callable[[NDArray[Any], NDArray[Any], Arrays, float, Floats], float]
"""``run(images, targets, masks, scale, outputs)`` fills outputs, gradients and state, and gives the loss."""

Inference = Callable[[NDArray[Any], NDArray[Any], Arrays, Floats], float]
"""``run(images, targets, masks, outputs)`` fills outputs and gives the loss."""


_Run = TypeVar("_Run")


class Backend(Protocol):
    """What every module of this package has."""

    def set_threads(self, number: int) -> None:
        """Use so many threads, unless the backend has begun to compute with its own number."""

    def allow(self, dtype: np.dtype[Any]) -> None:
        """Make ready to compute in ``dtype``, or refuse it."""

    def seeded(self, key: int) -> AbstractContextManager[None]:
        """Within, random operations that have no state of their own draw from ``key``, where a backend has such."""

    def compile_training(self, step: Step, buffers: Buffers) -> Training:
        """A pass with its gradients."""

    def compile_inference(self, infer: Infer, buffers: Buffers) -> Inference:
        """A pass without."""


class Variants(Generic[_Run]):
    """A pass, compiled for each form of what it is fed beside samples and targets: a graph knows one form only.

    The form of masks never changes; there may be weights of the loss or none, for each element or for all of them.
    """

    def __init__(self, compile_pass: Callable[[], _Run]) -> None:
        self._compile = compile_pass
        self._compiled: dict[tuple[tuple[int, ...], ...], _Run] = {}

    def of(self, fed: Arrays) -> _Run:
        """The pass for arrays of these forms."""
        form = tuple(tuple(array.shape[1:]) for array in fed)
        if form not in self._compiled:
            self._compiled[form] = self._compile()
        return self._compiled[form]


def current(dtype: np.dtype[Any]) -> Backend:
    """The module of the backend that Keras uses, made ready for ``dtype``."""
    backend = cast(Backend, import_module(f"{__name__}.{keras.backend.backend()}"))
    backend.allow(dtype)
    return backend
