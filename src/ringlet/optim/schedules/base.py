"""What all rules of a schedule share, and what a rule is told."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from ringlet.component import Component, Registry


@dataclass(frozen=True)
class Span:
    """The run that a schedule is made for."""

    learning_rate: float
    """The full rate, after any scaling by the number of workers."""
    num_epochs: float | None = None
    size: int = 1
    """The factor by which the rate was scaled: the number of workers (shards)."""
    warm_up_epochs: float = 0.0
    """Where the warm-up ends, if there is one that is counted in epochs."""


@dataclass(frozen=True)
class Time:
    """A moment of training: epochs done (with a fraction: 2.5 is the middle of the third) and updates done."""

    epoch: float
    step: int
    span: Span


@dataclass(frozen=True)
class Decision:
    """What the end of an epoch leads to."""

    factor: float = 1.0
    """What the learning rate was multiplied by; 1 leaves it."""
    stop_reason: str | None = None
    """Why training should end now, or None."""
    save: bool = False
    """Whether the model is the best so far and worth keeping (``model_checkpoint``, else ``early_stopping``)."""
    messages: tuple[str, ...] = ()
    """What to tell the user."""


@dataclass(frozen=True)
class Best:
    """The epoch (from 1) whose weights a run keeps, and why: the best value so far of the metric that it watches."""

    epoch: int
    metric: str
    value: float


SCHEDULES: Registry[type[Rule]] = Registry("scheduler", package="ringlet.optim.schedules", group="schedules")


class Rule(Component, ABC):
    """One part of a schedule; its options are those of the command line."""

    registry: ClassVar[Registry[Any] | None] = SCHEDULES

    def misfits(self, span: Span) -> Iterable[str]:  # noqa: ARG002
        """Why this rule cannot serve a run of this span, if so."""
        return ()


def lowered(learning_rate: float, factor: float, min_lr: float) -> float:
    """``learning_rate * factor``, but not below ``min_lr``; a rate that is already below stays as it is."""
    return max(learning_rate * factor, min(learning_rate, min_lr))
