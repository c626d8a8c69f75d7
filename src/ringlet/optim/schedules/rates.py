"""Learning rates as pure functions of time: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, final

from ringlet.component import Problem, option
from ringlet.optim.schedules.base import Rule, Span, Time, lowered

MIN_LR = "never below this learning rate"


class Rate(Rule):
    """A rule that changes the learning rate by time alone."""

    @abstractmethod
    def adjust(self, learning_rate: float, time: Time) -> float:
        """The learning rate at ``time``, where the rules before this one gave ``learning_rate``."""


@final
class WarmUp(Rate):
    """Rise linearly from a small rate to the full one over the first epochs (or steps).

    Begins at ``start_lr``, without it at the learning rate divided by the number of workers: the rate of one worker
    rises to that of all. With one worker and no ``start_lr`` there is nothing to warm up.
    Goyal et al., *Accurate, large minibatch SGD: training ImageNet in 1 hour*, 2017 (arXiv 1706.02677).
    """

    name: ClassVar[str] = "warm_up"
    epochs: float = option(5.0, "epochs of linear growth to the learning rate", unit="epochs", ge=0)
    steps: int | None = option(None, "the same in steps; wins over epochs", unit="steps", ge=1)
    start_lr: float | None = option(None, "where the growth begins; default: the rate of one worker", ge=0)

    def misfits(self, span: Span) -> Iterable[str]:
        """A start above the full rate."""
        if self.start_lr is not None and self.start_lr > span.learning_rate:
            yield (
                f"start_lr={self.start_lr:g} is above the learning rate {span.learning_rate:g}; a warm-up rises, so "
                "give a smaller start"
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``start + (lr - start) * progress``."""
        done, total = (time.epoch, self.epochs) if self.steps is None else (time.step, self.steps)
        if done >= total:
            return learning_rate
        start = learning_rate / time.span.size if self.start_lr is None else min(self.start_lr, learning_rate)
        return start + (learning_rate - start) * done / total


@final
class Cosine(Rate):
    """Fall along half a cosine, from the end of the warm-up to the last epoch; constant before and after.

    Loshchilov and Hutter, *SGDR: stochastic gradient descent with warm restarts*, 2017 (arXiv 1608.03983), no restarts.
    """

    name: ClassVar[str] = "cosine"
    epochs: float | None = option(None, "where the fall ends; default: the last epoch", unit="epochs", ge=0)
    min_lr: float = option(0.0, "learning rate at the end", ge=0)

    def misfits(self, span: Span) -> Iterable[str]:
        """No end, or one before the end of the warm-up."""
        end = self._end(span)
        if end is None:
            yield "it needs to know where it ends: give num_epochs or cosine_epochs"
        elif end <= span.warm_up_epochs:
            yield (
                f"the rate falls from epoch {span.warm_up_epochs:g} (the end of the warm-up) to epoch {end:g}: nothing "
                "is left; give more epochs (cosine_epochs) or a shorter warm-up (warm_up_epochs)"
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``min + (lr - min) * (1 + cos(pi * progress)) / 2``."""
        start, end = time.span.warm_up_epochs, self._end(time.span) or 0.0
        progress = min(max((time.epoch - start) / (end - start), 0.0), 1.0)
        if learning_rate <= self.min_lr:
            return learning_rate
        return self.min_lr + (learning_rate - self.min_lr) * (1.0 + math.cos(math.pi * progress)) / 2.0

    def _end(self, span: Span) -> float | None:
        return span.num_epochs if self.epochs is None else self.epochs


@final
class Step(Rate):
    """Multiply by ``factor`` at each of ``milestones`` (epochs), or after ``every`` so many epochs."""

    name: ClassVar[str] = "step"
    milestones: tuple[float, ...] = option((), "epochs at which the rate is multiplied, comma-separated", unit="epochs")
    every: int | None = option(None, "or: epochs between two multiplications", unit="epochs", ge=1)
    factor: float = option(0.1, "factor of the learning rate", gt=0, lt=1)
    min_lr: float = option(0.0, MIN_LR, ge=0)

    def contradictions(self) -> Iterable[Problem]:
        """Exactly one of milestones and every."""
        if any(milestone < 0 for milestone in self.milestones):
            yield Problem("milestones", f"{list(self.milestones)} is out of range, expected epochs of at least 0")
        if bool(self.milestones) == (self.every is not None):
            yield Problem(
                "",
                f"milestones={list(self.milestones)} and every={self.every}; give exactly one of them, for instance "
                "milestones 30,60,80 or every 10",
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``lr * factor^(number of steps passed)``, at least ``min_lr``."""
        if self.every is not None:
            passed = int(time.epoch // self.every)
        else:
            passed = sum(time.epoch >= milestone for milestone in self.milestones)
        return lowered(learning_rate, self.factor**passed, self.min_lr)


@final
class ReduceEveryNEpochs(Rate):
    """Multiply by ``factor`` after every ``nepochs`` epochs, down to ``min_lr``."""

    name: ClassVar[str] = "reduce_lr_every_nepochs"
    factor: float = option(0.1, "factor of the learning rate", gt=0, lt=1)
    nepochs: int = option(5, "epochs between two reductions", unit="epochs", ge=1)
    min_lr: float = option(0.0, MIN_LR, ge=0)

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``lr * factor^floor(epoch / nepochs)``, at least ``min_lr``."""
        return lowered(learning_rate, self.factor ** int(time.epoch // self.nepochs), self.min_lr)


@final
class RangeTest(Rate):
    """Multiply by the same factor after every step, until the rate is ``end_lr``: a learning-rate range test.

    `ringlet tune lr` trains with it and reads from the losses which rate to take.
    Smith, *Cyclical learning rates for training neural networks*, 2017 (arXiv 1506.01186).
    """

    name: ClassVar[str] = "range_test"
    end_lr: float = option(10.0, "learning rate at the end; scaled with the number of workers as the first", gt=0)
    steps: int = option(100, "steps from the first rate to the last", unit="steps", ge=2)

    def misfits(self, span: Span) -> Iterable[str]:
        """An end that is not above the start."""
        first = span.learning_rate / span.size
        if self.end_lr <= first:
            yield (
                f"end_lr={self.end_lr:g} is not above the learning rate {first:g}; a range test rises, so "
                "give a larger end or a smaller learning rate"
            )

    def adjust(self, learning_rate: float, time: Time) -> float:
        """``lr * (end / lr)^(step / (steps - 1))``, ``end`` from then on."""
        progress, end = min(time.step / (self.steps - 1), 1.0), self.end_lr * time.span.size
        return float(learning_rate * (end / learning_rate) ** progress)
