"""Spellings of Keras 2 in programs for Horovod, accepted by the Keras 3 of a process that runs one unchanged.

``compile(experimental_run_tf_function=…)`` asked Keras 2 to call Horovod's optimizer, which is called here anyway;
``optimizer.variables()`` is ``optimizer.variables`` now, ``optimizer.lr`` is ``optimizer.learning_rate``.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, final

import keras

_OLD_ARGUMENT = "experimental_run_tf_function"


@final
class _Variables(list[Any]):
    """A list that can be called, which gives the list."""

    def __call__(self) -> _Variables:
        return self


def accept() -> None:
    """Teach this process's Keras. Harmless when repeated."""
    optimizer = _owner(keras.optimizers.Optimizer, "variables")
    if "lr" in vars(optimizer):
        return
    variables = vars(optimizer)["variables"].fget
    optimizer.variables = property(lambda self: _Variables(variables(self)), doc="All variables of the optimizer.")
    optimizer.lr = property(
        lambda self: self.learning_rate,
        lambda self, value: setattr(self, "learning_rate", value),
        doc="Keras 2's name.",
    )
    model = _owner(keras.Model, "compile")
    model.compile = _without_old_argument(vars(model)["compile"])


def _owner(kind: type, name: str) -> Any:
    """The class that brings an attribute: Keras compares what classes have with that."""
    return next(base for base in kind.__mro__ if name in vars(base))


def _without_old_argument(compile_model: Any) -> Any:
    @functools.wraps(compile_model)
    def accepting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop(_OLD_ARGUMENT, None) is not None:
            warnings.warn(f"{_OLD_ARGUMENT} is not needed: leave it out", DeprecationWarning, stacklevel=2)
        return compile_model(self, *args, **kwargs)

    return accepting
