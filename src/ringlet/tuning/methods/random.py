"""Random search: every trial is trained to the end."""

from __future__ import annotations

from typing import ClassVar, final

from ringlet.tuning.methods.base import Job, Merits, Method, Question


@final
class Random(Method):
    """Draw every trial's values at random, train all trials to the end.

    Bergstra and Bengio, *Random search for hyper-parameter optimization*, 2012 (JMLR 13).
    """

    name: ClassVar[str] = "random"

    def next_jobs(self, question: Question, merits: Merits) -> list[Job]:
        """All trials that have no result."""
        jobs = [Job(trial, question.num_epochs, values) for trial, values in question.drawn.items()]
        return [job for job in jobs if job.key not in merits]

    def num_epochs(self, question: Question) -> int:
        """Trials times epochs."""
        return question.num_trials * question.num_epochs
