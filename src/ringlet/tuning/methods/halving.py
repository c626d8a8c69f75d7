"""Successive halving: many trials begin, the better ones go on."""

from __future__ import annotations

import math
from typing import ClassVar, final

from ringlet.component import option
from ringlet.tuning.methods.base import Job, Merits, Method, Question


@final
class Halving(Method):
    """Train all trials for few epochs, the best third for three times as many, and so on, each resuming its own run.

    Jamieson and Talwalkar, *Non-stochastic best arm identification and hyperparameter optimization*, 2016
    (arXiv 1502.07943). A stage begins when the one before it is complete, so that how fast a trial was decides nothing.
    """

    name: ClassVar[str] = "halving"
    argument: ClassVar[str] = "reduction"
    reduction: int = option(3, "one trial of so many goes on to the next stage", ge=2, le=100)
    min_epochs: int = option(1, "epochs of the first stage", unit="epochs", ge=1)

    def stages(self, question: Question) -> list[tuple[int, int]]:
        """(trials, epochs in all) of every stage."""
        count, epochs = question.num_trials, question.num_epochs
        found = [epochs]
        while len(found) < _num_stages(count, self.reduction):
            before = math.ceil(found[0] / self.reduction)
            if before < self.min_epochs or before == found[0]:
                break
            found.insert(0, before)
        return [(math.ceil(count / self.reduction**place), epochs) for place, epochs in enumerate(found)]

    def next_jobs(self, question: Question, merits: Merits) -> list[Job]:
        """What is missing in the first stage that is not complete."""
        trials = list(question.drawn)
        for count, epochs in self.stages(question):
            jobs = [Job(trial, epochs, question.drawn[trial]) for trial in trials[:count]]
            missing = [job for job in jobs if job.key not in merits]
            if missing:
                return missing
            ranked = [(merit, job.trial) for job in jobs if (merit := merits[job.key]) is not None]
            trials = [trial for _, trial in sorted(ranked)]
        return []

    def num_epochs(self, question: Question) -> int:
        """What each stage adds, for its trials."""
        total, before = 0, 0
        for count, epochs in self.stages(question):
            total += count * (epochs - before)
            before = epochs
        return total

    def describe(self, question: Question) -> str:
        """``9 trials of 1 epoch, then 3 of 3, then 1 of 9``."""
        (count, epochs), *later = self.stages(question)
        first = f"{count} trials of {epochs} epoch{'s' if epochs > 1 else ''}"
        return ", then ".join([first, *(f"{count} of {epochs}" for count, epochs in later)])


def _num_stages(num_trials: int, reduction: int) -> int:
    """As many as leave a trial to the last one."""
    stages = 1
    while num_trials > 1:
        num_trials, stages = math.ceil(num_trials / reduction), stages + 1
    return stages
