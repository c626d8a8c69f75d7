"""What all parts of a schedule share."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from ringlet.optim.options import check


@dataclass(frozen=True)
class Decision:
    """What the end of an epoch leads to."""

    factor: float = 1.0
    """What the learning rate was multiplied by; 1 leaves it."""
    stop_reason: str | None = None
    """Why training should end now, or None."""
    save: bool = False
    """Whether the model is worth keeping (``model_checkpoint``)."""
    messages: tuple[str, ...] = ()
    """What to tell the user."""


class Rule(ABC):
    """One part of a schedule; subclasses are frozen dataclasses of options, named as on the command line."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check(self, f"scheduler '{self.name}'")


def lowered(learning_rate: float, factor: float, min_lr: float) -> float:
    """``learning_rate * factor``, but not below ``min_lr``; a rate that is already below stays as it is."""
    return max(learning_rate * factor, min(learning_rate, min_lr))
