"""The loss that is usual for a task, where none was chosen."""

from __future__ import annotations

from typing import ClassVar, final

from ringlet.errors import UsageError
from ringlet.losses.base import Loss
from ringlet.losses.classes import BinaryCrossEntropy, CategoricalCrossEntropy
from ringlet.losses.functions import StandIn
from ringlet.losses.overlap import BceDice
from ringlet.losses.values import SquaredError


@final
class Automatic(StandIn):
    """Usual for the task: ``categorical_cross_entropy`` of classes, ``bce_dice`` of one mask, ``binary_cross_entropy``
    of several labels, ``mse`` of values.
    """

    name: ClassVar[str] = "auto"

    def for_task(self, task: str, num_outputs: int) -> Loss:
        """That loss."""
        if task == "regression":
            return SquaredError()
        if task == "multilabel":
            return BinaryCrossEntropy()
        return BceDice() if task == "segmentation" and num_outputs == 1 else CategoricalCrossEntropy()

    def refusal(self) -> UsageError:
        """It must be asked for a task first."""
        return UsageError("loss 'auto' follows from a task: name the loss where there is none")
