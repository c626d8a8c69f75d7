"""What a method is asked: given all results so far, what is to be trained next?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ringlet.component import Component, Registry
from ringlet.libraries import check_installed
from ringlet.tuning.space import Space

METHODS: Registry[type[Method]] = Registry("search method", package="ringlet.tuning.methods", group="searches")


@dataclass(frozen=True)
class Job:
    """Train trial number ``trial`` until ``epochs`` are done in all; what it has trained before is resumed."""

    trial: int
    epochs: int
    values: Mapping[str, Any]
    """What the trial's options are set to."""

    @property
    def key(self) -> tuple[int, int]:
        """The number of the trial, and after how many epochs."""
        return self.trial, self.epochs


@dataclass(frozen=True)
class Question:
    """What does not change during a search."""

    space: Space
    num_trials: int
    num_epochs: int
    """Of a trial that is trained to the end."""
    seed: int
    parallel: int
    """How many trials are trained side by side."""

    @cached_property
    def drawn(self) -> dict[int, dict[str, Any]]:
        """The values of every trial, by its number from 1 on, for methods that draw all at the start."""
        return dict(enumerate(self.space.draw(self.seed, self.num_trials), 1))


Merits = Mapping[tuple[int, int], float | None]
"""What came of jobs by :attr:`Job.key`: small is good, None is a trial that diverged or failed."""


class Method(Component, ABC):
    """A method by its name and options. It keeps nothing: an interrupted search asks again with what is on disk."""

    registry: ClassVar[Registry[Any] | None] = METHODS
    library: ClassVar[str | None] = None
    """The package that it needs."""

    def check_library(self) -> None:
        """Say how to get the package, if it is not installed."""
        if self.library is not None:
            check_installed(self.library)

    @abstractmethod
    def next_jobs(self, question: Question, merits: Merits) -> list[Job]:
        """What can be trained now and has no result yet, in order; nothing: the search is over.

        A pure function: the same results give the same jobs, in whichever order they came.
        """

    @abstractmethod
    def num_epochs(self, question: Question) -> int:
        """Epochs of all trials together, at most."""

    def describe(self, question: Question) -> str:
        """The plan in a phrase."""
        return f"{question.num_trials} trials of {question.num_epochs} epochs"
