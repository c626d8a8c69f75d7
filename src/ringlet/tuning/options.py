"""What a search is asked to do, and what follows from that before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ringlet.component import Component, option
from ringlet.config import RunConfig
from ringlet.config.assembly import Given
from ringlet.config.names import locate, typed
from ringlet.errors import ConfigError, UsageError
from ringlet.launch.resources import usable_cores
from ringlet.optim.metric_names import is_maximised, resolve
from ringlet.training.components import check_fit, make_dataset, make_metrics, make_spec
from ringlet.tuning.methods.base import Job, Method, Question
from ringlet.tuning.methods.halving import Halving
from ringlet.tuning.space import ABOVE, Space, applicable, parse_space

QUIET: Mapping[str, Any] = {"training.evaluate": False, "output.num_pictures": 0, "checkpoint.keep": 1}
"""What trials leave out unless it is asked for."""
OWN: Mapping[str, str] = {
    "training.num_epochs": "it is the length of all trials: give --num-epochs",
    "training.stop_after": "the method decides how long trials are trained",
    "training.evaluate_only": "trials train",
    "training.seed": "all trials have the same: give --seed",
    "output.run_dir": "every trial has its own; --tune-dir names the folder of all",
    "output.history_file": "every trial has its own log",
    "output.timeline": "every trial has its own log",
    "output.profile": "every trial has its own log",
    "checkpoint.resume": "trials resume by themselves",
    "checkpoint.every": "trials resume by themselves",
    "checkpoint.location": "trials keep checkpoints in their own folders",
}
"""Options that a space cannot hold, by path, and why."""
_ANYWAY = ("training.num_epochs", "training.seed")
"""Those of them that may be given for all trials."""
_FIXED = ABOVE + 1
"""The source of what the search sets itself."""


class SearchOptions(Component):
    """A search: how many trials of which method, judged by what, on how many workers."""

    trials: int = option(20, "configurations to try", ge=1, le=10_000)
    method: Method = option(Halving(), "how they are chosen and how long each is trained")
    metric: str = option("", "what counts, of validation if there is any; default: the loss")
    parallel: int = option(0, "trials side by side; 0: as many as the cores allow", ge=0, le=4096)
    workers: int = option(1, "workers of each trial", ge=1, le=65_536)
    keep_models: bool = option(False, "keep the networks of all trials, not only of the best")
    launcher: str = option("auto", "what starts the workers")
    hosts: str = option("", "machines and their workers")

    @classmethod
    def title(cls) -> str:
        """How messages call it."""
        return "tune"


@dataclass(frozen=True)
class Search:
    """A search whose every decision is fixed, but for the results."""

    options: SearchOptions
    space: Space
    given: tuple[Given, ...]
    """The options of all trials."""
    metric: str
    """By its name in the logs, such as ``val_loss``."""
    parallel: int
    threads: int | None
    """Of a worker; None: as the options or the launcher say."""

    @cached_property
    def base(self) -> RunConfig:
        """The configuration without what the search varies."""
        return RunConfig.from_given(self.given)

    @cached_property
    def question(self) -> Question:
        """What the method is asked."""
        training, size = self.base.training, self.space.size()
        num_trials = self.options.trials if size is None else min(self.options.trials, size)
        return Question(self.space, num_trials, training.num_epochs, training.seed, self.parallel)

    def values(self, job: Job) -> dict[str, Any]:
        """The options of a trial that apply to it."""
        return applicable(job.values, self.given)

    def best_config(self, values: Mapping[str, Any]) -> RunConfig:
        """The configuration of a trial, as anyone would train it."""
        return RunConfig.from_given([*self.given, *_from_space(values)])

    def run_config(self, job: Job, run_dir: str) -> RunConfig:
        """The configuration with which a trial is trained up to a stage."""
        quiet = [Given(name, value, name) for name, value in QUIET.items()]
        fixed: dict[str, Any] = {"run_dir": run_dir, "resume": "auto", "stop_after": job.epochs}
        fixed |= {} if self.threads is None else {"threads": self.threads}
        last = [Given(name, value, name, _FIXED) for name, value in fixed.items()]
        return RunConfig.from_given([*quiet, *self.given, *_from_space(self.values(job)), *last])

    def merit(self, value: float | None) -> float | None:
        """A value of the metric as methods compare it: small is good."""
        return None if value is None else -value if is_maximised(self.metric) else value

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "options": self.options.values(),
            "space": self.space.to_dict(),
            "run": [[given.name, _plain(given.value), given.source] for given in self.given],
            "metric": self.metric,
            "parallel": self.parallel,
            "threads": self.threads,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Search:
        """What :meth:`to_dict` wrote."""
        given = tuple(Given(name, typed(value, name), name, source) for name, value, source in stored["run"])
        options, space = SearchOptions(**stored["options"]), parse_space(stored["space"])
        return cls(options, space, given, stored["metric"], stored["parallel"], stored["threads"])


def prepare(options: SearchOptions, space: Mapping[str, Any], given: Iterable[Given]) -> tuple[Search, list[str]]:
    """Check everything that can be checked without training; gives the search and remarks for the user."""
    found, values = parse_space(space), tuple(one for one in given if _path(one.name) not in OWN or _is_for_all(one))
    options.method.check_library()
    _check_space(found)
    base = RunConfig.from_given(values)
    if base.training.num_epochs < 1:
        raise ConfigError("num_epochs = 0: a trial has at least one epoch to be judged by. Give --num-epochs")
    cores = usable_cores()
    usual = 1 if options.hosts else max(1, min(options.trials, cores // options.workers))
    parallel = options.parallel or usual
    threads = max(1, cores // (parallel * options.workers))
    is_fixed = base.engine.threads is not None or bool(options.hosts)
    search = Search(options, found, values, _metric(options, base), parallel, None if is_fixed else threads)
    for job in options.method.next_jobs(search.question, {}):
        _check_job(search, job)
    return search, _remarks(search, cores)


def _remarks(search: Search, cores: int) -> list[str]:
    options, busy = search.options, search.parallel * search.options.workers
    found = []
    if busy > cores and not options.hosts:
        shared = f"{cores} {'core' if cores == 1 else 'cores'}"
        found.append(f"{busy} workers at once share {shared}: trials slow each other down")
    if search.question.num_trials < options.trials:
        found.append(f"the space has {search.question.num_trials} configurations: all of them are tried")
    return found


def check_given(names: Iterable[str]) -> None:
    """Refuse options of a run that a search sets itself, where a user has given them."""
    for name in names:
        path = _path(name)
        if path in OWN and path not in _ANYWAY:
            raise UsageError(f"option '{name}' is set by the search for each of its trials: {OWN[path]}")


def _check_space(space: Space) -> None:
    for dimension in space.dimensions:
        reason = OWN.get(_path(dimension.name))
        if reason is not None:
            raise ConfigError(f"space: {dimension.name} cannot be searched: {reason}")


def _check_job(search: Search, job: Job) -> None:
    try:
        config = search.run_config(job, "run")
        config.num_shards(search.options.workers)
        config.check_network()
    except ConfigError as error:
        values = ", ".join(f"{name} = {value}" for name, value in job.values.items())
        raise ConfigError(f"trial {job.trial} ({values}) is no valid run: {error}") from None


def _metric(options: SearchOptions, base: RunConfig) -> str:
    """The metric by its name in the logs: of validation, if nothing else is said and there is any."""
    dataset = make_dataset(base)
    spec = make_spec(base, dataset)
    check_fit(spec, dataset)
    reported = ["loss", *(measure.name for measure in make_metrics(base, dataset)[1])]
    known = [*reported, *(f"val_{name}" for name in reported if dataset.validation is not None)]
    if not options.metric:
        return resolve(None, known)
    try:
        return resolve(f"val_{options.metric}", known)
    except ConfigError:
        return resolve(options.metric, known)


def _is_for_all(given: Given) -> bool:
    return _path(given.name) in _ANYWAY


def _path(name: str) -> str:
    alias = locate(name.replace("-", "_"))
    return "" if alias is None else ".".join(alias.path)


def _from_space(values: Mapping[str, Any]) -> list[Given]:
    return [Given(name, value, f"space: {name}", ABOVE) for name, value in values.items()]


def _plain(value: Any) -> Any:
    """A value as JSON knows it; components by their short texts."""
    if isinstance(value, Component):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
