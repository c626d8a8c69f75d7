"""Losses made of plain functions, for :class:`ringlet.Trainer` and, by :func:`loss`, under a name of their own.

A function takes the outputs ``(n, *shape)`` as the network gives them (probabilities after softmax or sigmoid) and the
targets: classes ``(n, …)`` where they exclude each other, else values of the shape of the outputs. On engine torch both
are tensors of PyTorch, on engine keras those of its backend; the function gives each sample's loss ``(n,)``, or their
mean. On engine native both are arrays of NumPy; the function gives each sample's loss and the gradient of their sum
with respect to the outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self, final

import numpy as np
from pydantic import PrivateAttr

from ringlet.component import Registry, required
from ringlet.errors import UsageError, show
from ringlet.kernels.reference.losses import ValueAndGradient
from ringlet.losses.base import LOSSES, Array, Loss, Targets

Function = Callable[[Any, Any], Any]


class FunctionLoss(Loss):
    """A loss that a function computes; :func:`loss` makes its subclasses."""

    function: ClassVar[Function]
    wanted_targets: ClassVar[Targets | None] = None
    """What the function compares with; None: what the task has."""
    _targets: Targets = PrivateAttr("values")

    @property
    def targets(self) -> Targets:
        """As the function wants them, or as the task has them."""
        return self.wanted_targets or self._targets

    def for_task(self, task: str, num_outputs: int) -> Self:
        """A copy that knows its targets."""
        found = self.model_copy()
        found._targets = "classes" if task in ("classification", "segmentation") and num_outputs > 1 else "values"
        return found

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """What the function gives for samples outermost."""
        outputs = np.ascontiguousarray(np.moveaxis(prediction, -1, 0))
        result = type(self).function(outputs, np.ascontiguousarray(np.moveaxis(target, -1, 0)))
        if not isinstance(result, tuple) or len(result) != 2:
            raise UsageError(
                f"loss '{self.name}' gave {_kind(result)}: on engine native it must give each sample's loss (n,) and "
                "the gradient of their sum, as a pair. With engine = torch a function gives losses alone"
            )
        values, gradient = (np.asarray(part) for part in result)
        self._check("losses", values.shape, outputs.shape[:1])
        self._check("a gradient", gradient.shape, outputs.shape)
        gradient = np.moveaxis(gradient, 0, -1)
        if weight is not None:
            factor = self._per_sample(weight, weight.shape[:-1]).reshape(-1)
            values, gradient = values * factor, gradient * factor
        return values, gradient

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:  # noqa: ARG002
        """What the function gives; a mean counts for every sample."""
        values = type(self).function(prediction, target)
        shape = getattr(values, "shape", None)
        if shape is None or len(shape) > 1:
            raise UsageError(f"loss '{self.name}' gave {_kind(values)}: expected each sample's loss (n,) or their mean")
        if len(shape) == 1:
            self._check("losses", tuple(shape), tuple(prediction.shape[:1]))
            return values if weight is None else values * ops.reshape(self._per_sample(weight, weight.shape[1:]), (-1,))
        if weight is not None:
            raise UsageError(
                f"loss '{self.name}' gives a mean, which weights cannot be applied to: let it give each sample's loss"
            )
        return values * ops.ones_like(prediction[(slice(None), *[0] * (len(prediction.shape) - 1))])

    def _per_sample(self, weight: Any, others: tuple[Any, ...]) -> Any:
        if any(extent != 1 for extent in others):
            raise UsageError(
                f"loss '{self.name}' is a function of samples: weights of pixels or labels cannot be applied to it. "
                "Leave class_weights out and weigh within the function"
            )
        return weight

    def _check(self, what: str, found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        if len(found) != len(expected) or any(a != b for a, b in zip(found, expected, strict=True) if a and b):
            raise UsageError(f"loss '{self.name}' gave {what} of shape {found}: expected {expected}")


class StandIn(Loss):
    """A loss that only stands for another one; it computes nothing."""

    @abstractmethod
    def refusal(self) -> UsageError:
        """Why it cannot compute."""

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> NoReturn:  # noqa: ARG002
        """Refused."""
        raise self.refusal()

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> NoReturn:  # noqa: ARG002
        """Refused."""
        raise self.refusal()


@final
class GivenLoss(StandIn):
    """A loss that a program has handed over as a function; only that program can compute it."""

    name: ClassVar[str] = "given"
    argument: ClassVar[str] = "title_given"
    is_listed: ClassVar[bool] = False
    title_given: str = required("what the program calls it", min_length=1)

    def refusal(self) -> UsageError:
        """It is not here."""
        return UsageError(
            f"loss '{self.title_given}' was given to the run by a program, as a function: train, resume or evaluate "
            "there. Registered by ringlet.loss in a package, it is found by its name"
        )


def loss(function: Function | None = None, *, name: str = "", targets: Targets | None = None) -> Any:
    """Enter a function as a loss: a decorator, with or without arguments. The result is the class of the loss.

    ``name`` is that of the function by default. ``targets`` says what it compares with: ``"classes"`` or ``"values"``;
    by default what the task has.
    """

    def enter(found: Function) -> type[FunctionLoss]:
        return loss_of(found, name, targets, LOSSES)

    return enter if function is None else enter(function)


def loss_of(
    function: Function, name: str = "", targets: Targets | None = None, registry: Registry[Any] | None = None
) -> type[FunctionLoss]:
    """The class of a function's loss; without a ``registry`` no one else finds it."""
    if not callable(function):
        raise UsageError(f"a loss must be a name, a ringlet Loss or a function, got {show(function)}")
    about = {
        "__module__": getattr(function, "__module__", __name__),
        "__qualname__": getattr(function, "__qualname__", "function"),
        "__doc__": function.__doc__ or "A function.",
        "__annotations__": {"name": ClassVar[str], "registry": ClassVar[Any]},
        "name": name or getattr(function, "__name__", "loss"),
        "registry": registry,
        "function": staticmethod(function),
        "wanted_targets": targets,
    }
    return type("FunctionLoss", (FunctionLoss,), about)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
