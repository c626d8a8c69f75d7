"""Classes made for a user's optimizer: instances of the user's class that do something else in ``step``."""

from __future__ import annotations

import sys
from typing import Any

from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from ringlet.errors import RingletError
from ringlet.named import ArgumentsError

_UNSCALING = GradScaler._unscale_grads_.__code__


class GradientStateError(RingletError, AssertionError):
    """Calls in an order that would lose or mix up gradients."""


class WrappedOptimizer(Optimizer):
    """Base of the classes that are put before a user's optimizer class in the order of inheritance."""

    _original: Optimizer | None = None
    """What it was made of; copies have none, and exchange nothing."""

    def note_step(self) -> None:
        """Learning-rate schedules that were made for the given optimizer ask whether it has stepped."""
        if self._original is not None:
            self._original._opt_called = True  # type: ignore[attr-defined]


_classes: dict[tuple[type[Any], type[Any]], type[Any]] = {}


def _joined_class(wrapper: type[Any], base: type[Any]) -> type[Any]:
    """Made once, so that equal optimizers have equal classes."""
    made = _classes.get((wrapper, base))
    if made is None:
        made = type(base.__name__, (wrapper, base), {"__module__": base.__module__, "__doc__": base.__doc__})
        _classes[wrapper, base] = made
    return made


def wrap(optimizer: Optimizer, wrapper: type[WrappedOptimizer]) -> Any:
    """A new optimizer over the same groups, state and hooks; the given one must not be stepped any more."""
    if isinstance(optimizer, WrappedOptimizer):
        raise ArgumentsError("the optimizer is distributed already: pass the plain one")
    made = object.__new__(_joined_class(wrapper, type(optimizer)))
    # A learning-rate schedule that knows the given optimizer has put a ``step`` of its own there.
    made.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})
    made._original = optimizer
    return made


def base_class(optimizer: Optimizer) -> type[Optimizer]:
    """The user's class, without what :func:`wrap` put before it."""
    kinds: tuple[type[Any], ...] = type(optimizer).__mro__
    return next(kind for kind in kinds if not issubclass(kind, WrappedOptimizer))


def local_step(optimizer: Optimizer) -> None:
    """A step of the user's class alone: nothing is exchanged."""
    base_class(optimizer).step(optimizer)


def asked_by_grad_scaler() -> bool:
    """Whether the caller of the caller is a GradScaler that is about to unscale gradients."""
    return sys._getframe(2).f_code is _UNSCALING
