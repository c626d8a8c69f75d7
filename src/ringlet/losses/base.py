"""What a loss is: its targets, the last layers that it joins, and its formula for NumPy and for frameworks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ringlet.component import Component, Registry
from ringlet.errors import ConfigError
from ringlet.kernels.reference.losses import ValueAndGradient

Targets = Literal["classes", "values"]
Array = NDArray[Any]

LOSSES: Registry[type[Loss]] = Registry("loss", package="ringlet.losses", group="losses")


class Loss(Component, ABC):
    """A loss by its name and options. The docstring begins with its line in help and documentation.

    A sample's loss is a number; the loss of a batch is the sum over its samples, which engines divide by their number.
    ``weight`` says how much each pixel or element counts, or is None: a sample's loss is the sum of weighted terms over
    their number, not over the sum of the weights, so that the parts of a batch add up to the whole.

    With ``logits`` the prediction is what goes into the last layer, one of ``joins``, rather than its result.
    """

    registry: ClassVar[Registry[Any] | None] = LOSSES
    joins: ClassVar[tuple[str, ...]] = ()
    """Last operations (softmax, sigmoid) that the formula can include, which is more stable than after them."""
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "segmentation", "regression")
    """What it can be minimised for."""

    @property
    def targets(self) -> Targets:
        """Whether it compares with a class per sample or pixel, or with values of the shape of the prediction."""
        return "values"

    @property
    def text(self) -> str:
        """The short text that names it with its options; ``given:NAME`` where only this program knows it."""
        return f"given:{self.name}" if self.registry is None else str(self)

    def kernel(self, *, logits: bool) -> str | None:
        """The compiled kernel that computes it with these options and without weights, if there is one."""
        del logits
        return None

    @abstractmethod
    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:
        """In NumPy, samples innermost: each sample's loss ``(n,)``, and the gradient of their sum.

        ``prediction (C, …, n)``; ``target`` and ``weight`` are ``(…, n)`` where classes are compared, else
        ``(C, …, n)``, where the weight may have ones for extents.
        """

    @abstractmethod
    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:
        """Each sample's loss ``(n,)`` in tensors of a framework, samples outermost; it differentiates that itself.

        ``ops`` has functions under the names of ``keras.ops``: Keras' own, or PyTorch's
        (:mod:`ringlet.engines.torch.ops`).
        """

    def for_task(self, task: str, num_outputs: int) -> Loss:
        """The loss as it is minimised for a task: itself, unless it has a form for each; a misfit is an error."""
        if task not in self.tasks:
            raise self._misfit(task, f"it is for {' and '.join(self.tasks)}")
        if self.targets == "classes" and (num_outputs < 2 or task in ("multilabel", "regression")):
            raise self._misfit(task, "it compares classes that exclude each other, at least two of them")
        return self

    def soft_form(self) -> Loss:
        """The loss that takes shares of classes, which mixed samples have, and gives the same for a whole class."""
        if self.targets == "values":
            return self
        raise ConfigError(
            f"loss '{self.name}' compares whole classes, and mixup and cutmix make shares of classes: choose "
            "categorical_cross_entropy, or leave the mixtures out"
        )

    def _misfit(self, task: str, reason: str) -> ConfigError:
        usual = {
            "classification": "categorical_cross_entropy",
            "multilabel": "binary_cross_entropy",
            "segmentation": "bce_dice or, of several classes, categorical_cross_entropy",
            "regression": "mse, mae or huber",
        }[task]
        return ConfigError(f"loss '{self.name}' does not fit {task}: {reason}. Usual for {task}: {usual}")


class PointwiseLoss(Loss):
    """A loss that is a mean over a sample's pixels (of classes) or elements (of values), each with its own term."""

    @abstractmethod
    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:
        """Every term, samples innermost, and the gradient of their sum."""

    @abstractmethod
    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """Every term, samples outermost."""

    def gradient(self, prediction: Array, target: Array, weight: Array | None, *, logits: bool) -> ValueAndGradient:
        """The mean of the weighted terms."""
        values, gradient = self.points(prediction, target, logits=logits)
        if weight is not None:
            values, gradient = values * weight, gradient * weight
        count = max(1, prod(values.shape[:-1]))
        sums = values.sum(axis=tuple(range(values.ndim - 1)), dtype=np.float64)
        return sums / count, gradient / count

    def tensors(self, ops: Any, prediction: Any, target: Any, weight: Any | None, *, logits: bool) -> Any:
        """The mean of the weighted terms."""
        values = self.point_tensors(ops, prediction, target, logits=logits)
        if weight is not None:
            values = values * weight
        axes = tuple(range(1, len(values.shape)))
        return ops.sum(values, axis=axes) / prod(values.shape[1:]) if axes else values
