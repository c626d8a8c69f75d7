"""How each Keras backend hands gradients to NumPy and back: one module for each, with the same functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

import keras

from ringlet.comm.contract import Array
from ringlet.keras.exchange import ArgumentError, GradientExchange

BACKENDS = ("tensorflow", "torch", "jax")
Result = TypeVar("Result")


class Backend(Protocol):
    """What every module of this package has."""

    def exchange(self, exchange: GradientExchange, gradients: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
        """The gradients (dense tensors of the given shapes) after ``exchange``, in the order of the program."""

    def call(self, function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any]) -> list[Any]:
        """``function`` of the tensors' values, which keeps shapes and dtypes; works on symbolic tensors too."""

    def is_symbolic(self, value: Any) -> bool:
        """Whether a tensor has no value yet, since a graph is being traced."""

    def dense(self, gradient: Any, variable: Any) -> Any:
        """The gradient of a variable as a plain tensor."""

    def settle(self, tensors: Sequence[Any]) -> None:
        """Return when what computes the tensors has ended."""

    def are_reduced_elsewhere(self, variables: Sequence[Any]) -> bool:
        """Whether something else already averages the gradients of these variables over ranks."""

    def check_model(self, model: Any) -> None:
        """Refuse what cannot be exchanged from within."""

    def forget_traces(self, model: Any) -> None:
        """Make sure that the model's next training step is traced again."""


def unconverted(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates what may be called inside of ``tf.function`` or ``torch.compile``, which would rewrite it in vain."""
    name = keras.backend.backend()
    if name == "tensorflow":
        return cast(Callable[..., Result], import_module(name).autograph.experimental.do_not_convert(function))
    if name == "torch":
        return cast(Callable[..., Result], import_module(name).compiler.disable(function))
    return function


def current() -> Backend:
    """The module of the backend that Keras uses."""
    name = keras.backend.backend()
    if name not in BACKENDS:
        raise ArgumentError(
            f"Keras runs on the backend '{name}', which cannot train: set KERAS_BACKEND to one of {', '.join(BACKENDS)}"
        )
    return cast(Backend, import_module(f"ringlet.keras.backends.{name}"))
