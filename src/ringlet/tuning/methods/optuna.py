"""Optuna, where it is installed: its sampler proposes values from the results so far."""

from __future__ import annotations

import hashlib
import math
import warnings
from typing import Any, ClassVar, final

from ringlet.component import option
from ringlet.libraries import require
from ringlet.tuning.methods.base import Job, Merits, Method, Question
from ringlet.tuning.space import Dimension, Range, Space


@final
class Optuna(Method):
    """Let Optuna's TPE sampler propose values; every trial is trained to the end.

    As many trials as are trained side by side are proposed at once, each knowing the results before them, so a search
    that is interrupted proposes the same again.
    Akiba et al., *Optuna: a next-generation hyperparameter optimization framework*, 2019 (arXiv 1907.10902).
    """

    name: ClassVar[str] = "optuna"
    library: ClassVar[str | None] = "optuna"
    startup: int = option(10, "trials at random before the sampler learns from them", ge=1)

    def next_jobs(self, question: Question, merits: Merits) -> list[Job]:
        """What is missing of the first group of trials that is not complete."""
        done: list[Job] = []
        for first in range(1, question.num_trials + 1, question.parallel):
            trials = range(first, min(first + question.parallel, question.num_trials + 1))
            jobs = self._proposed(question, trials, done, merits)
            missing = [job for job in jobs if job.key not in merits]
            if missing:
                return missing
            done += jobs
        return []

    def num_epochs(self, question: Question) -> int:
        """Trials times epochs."""
        return question.num_trials * question.num_epochs

    def _proposed(self, question: Question, trials: range, done: list[Job], merits: Merits) -> list[Job]:
        """The jobs of some trials, from the results of those ``done``."""
        optuna = require("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=_seed(question.seed, trials[0]), n_startup_trials=self.startup, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler)
        known = _distributions(optuna, question.space)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features are its makers' affair
            for job in done:
                merit = merits[job.key]  # a failure is as bad as can be: a failed trial would teach nothing
                value = math.inf if merit is None else merit
                parameters = {one.name: _internal(one, job.values[one.name]) for one in question.space.dimensions}
                study.add_trial(optuna.trial.create_trial(params=parameters, distributions=known, value=value))
            asked = [study.ask(known) for _ in trials]
        return [
            Job(trial, question.num_epochs, _drawn(question.space, one.params))
            for trial, one in zip(trials, asked, strict=True)
        ]


def _seed(seed: int, trial: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{trial}".encode()).digest()[:4])


def _distributions(optuna: Any, space: Space) -> dict[str, Any]:
    return {one.name: _distribution(optuna.distributions, one) for one in space.dimensions}


def _distribution(distributions: Any, dimension: Dimension) -> Any:
    """Choices go by their places, as Optuna takes only some kinds of values."""
    values = dimension.values
    if not isinstance(values, Range):
        return distributions.CategoricalDistribution(tuple(range(len(values))))
    if values.is_whole:
        return distributions.IntDistribution(int(values.low), int(values.high), log=values.scale == "log")
    return distributions.FloatDistribution(values.low, values.high, log=values.scale == "log")


def _internal(dimension: Dimension, value: Any) -> Any:
    return value if isinstance(dimension.values, Range) else dimension.values.index(value)


def _drawn(space: Space, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        one.name: one.values.rounded(parameters[one.name])
        if isinstance(one.values, Range)
        else one.values[parameters[one.name]]
        for one in space.dimensions
    }
