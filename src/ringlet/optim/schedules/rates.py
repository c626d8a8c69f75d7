"""Learning rates as pure functions of time: nothing to save, nothing to restore.

``epoch`` is the number of epochs done, with a fraction inside an epoch (2.5 is the middle of the third); ``step`` is
the number of updates done.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

from ringlet.errors import ConfigError
from ringlet.optim.options import (
    count,
    non_negative,
    numbers,
    optional_count,
    optional_number,
    required_number,
    shrinking,
)
from ringlet.optim.schedules.rule import Rule, lowered


@dataclass(frozen=True)
class Time:
    """A moment of training: epochs done (with a fraction) and updates done."""

    epoch: float
    step: int


class Rate(Rule):
    """A rule that changes the learning rate by time alone."""

    @abstractmethod
    def adjust(self, learning_rate: float, time: Time) -> float:
        """The learning rate at ``time``, where the rules before this one gave ``learning_rate``."""


@final
@dataclass(frozen=True, kw_only=True)
class WarmUp(Rate):
    """Rise linearly from a small rate to the full one over the first epochs (or ``steps``).

    Begins at ``start_lr``, without it at the learning rate divided by ``size``, the number of workers: the rate of one
    worker rises to that of all. With one worker and no ``start_lr`` there is nothing to warm up.
    Goyal et al., *Accurate, large minibatch SGD: training ImageNet in 1 hour*, 2017 (arXiv 1706.02677).
    """

    name: ClassVar[str] = "warm_up"
    epochs: float = non_negative(5.0)
    steps: int | None = optional_count()
    start_lr: float | None = optional_number(minimum=0.0)
    size: int = count(1, minimum=1)

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``start + (lr - start) * progress``."""
        done, total = (time.epoch, self.epochs) if self.steps is None else (time.step, self.steps)
        if done >= total:
            return learning_rate
        start = learning_rate / self.size if self.start_lr is None else min(self.start_lr, learning_rate)
        return start + (learning_rate - start) * done / total


@final
@dataclass(frozen=True, kw_only=True)
class Cosine(Rate):
    """Fall along half a cosine from the full rate at ``start`` to ``min_lr`` at ``epochs``; constant before and after.

    Loshchilov and Hutter, *SGDR: stochastic gradient descent with warm restarts*, 2017 (arXiv 1608.03983), no restarts.
    """

    name: ClassVar[str] = "cosine"
    epochs: float = required_number(minimum=0.0)
    min_lr: float = non_negative(0.0)
    start: float = non_negative(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs <= self.start:
            raise ConfigError(
                f"scheduler 'cosine': the rate falls from epoch {self.start:g} (the end of the warm-up) to epoch "
                f"{self.epochs:g}: nothing is left; give more epochs (cosine_epochs) or a shorter warm-up "
                "(warm_up_epochs)"
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``min + (lr - min) * (1 + cos(pi * progress)) / 2``."""
        progress = min(max((time.epoch - self.start) / (self.epochs - self.start), 0.0), 1.0)
        if learning_rate <= self.min_lr:
            return learning_rate
        return self.min_lr + (learning_rate - self.min_lr) * (1.0 + math.cos(math.pi * progress)) / 2.0


@final
@dataclass(frozen=True, kw_only=True)
class Step(Rate):
    """Multiply by ``factor`` at each of ``milestones`` (epochs), or after ``every`` so many epochs."""

    name: ClassVar[str] = "step"
    milestones: tuple[float, ...] = numbers(minimum=0.0)
    every: int | None = optional_count()
    factor: float = shrinking(0.1)
    min_lr: float = non_negative(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.milestones) == (self.every is not None):
            raise ConfigError(
                f"scheduler 'step': milestones={self.milestones!r} and every={self.every!r}; give exactly one of them, "
                "for instance milestones 30,60,80 or every 10"
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``lr * factor^(number of steps passed)``, at least ``min_lr``."""
        if self.every is not None:
            passed = int(time.epoch // self.every)
        else:
            passed = sum(time.epoch >= milestone for milestone in self.milestones)
        return lowered(learning_rate, self.factor**passed, self.min_lr)


@final
@dataclass(frozen=True, kw_only=True)
class ReduceEveryNEpochs(Rate):
    """Multiply by ``factor`` after every ``nepochs`` epochs, down to ``min_lr``."""

    name: ClassVar[str] = "reduce_lr_every_nepochs"
    factor: float = shrinking(0.1)
    nepochs: int = count(5, minimum=1)
    min_lr: float = non_negative(0.0)

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``lr * factor^floor(epoch / nepochs)``, at least ``min_lr``."""
        return lowered(learning_rate, self.factor ** int(time.epoch // self.nepochs), self.min_lr)
