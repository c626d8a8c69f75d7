"""What a study is asked to do: its own options and those of its runs, from the command line or a TOML file."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ringlet.component import Component, OptionError, Problem, option
from ringlet.config import RunConfig, gather, read_toml
from ringlet.config.names import WITHOUT_EFFECT, locate, typed, unknown_option
from ringlet.errors import ConfigError
from ringlet.option_text import bare, parse_text, shown

AUTO, ALL = "auto", "all"
MAX_RUNS = 10_000
BETTER = {
    "model": "",
    "engine": "",
    "strategy": "",
    "training.num_epochs": "epochs",
    "training.steps_per_epoch": "steps",
    "training.local_batch_size": "batch with scaling = weak",
    "training.global_batch_size": "batch with scaling = strong",
    "training.evaluate_only": "",
    "workers.partition": "distribution",
    "workers.parallel": "",
    "output.run_dir": "study_dir",
    "output.history_file": "",
    "output.timeline": "",
    "output.profile": "",
    "checkpoint.resume": "",
}
"""Options of a run that a study sets itself, by path, each with the option of the study that says it."""


class StudyOptions(Component):
    """A study: the grid of its runs, and ``run``, the options of all of them under any of their names."""

    model: tuple[str, ...] = option(("vgg1dobn",), "networks, also NAME@DATASET", min_length=1)
    workers: tuple[int, ...] = option((), "numbers of workers; default: 1, 2, 4 … cores")
    engine: tuple[str, ...] = option(("native",), "engines, also keras:BACKEND", min_length=1)
    strategy: tuple[str, ...] = option(("sync",), "how workers agree", min_length=1)
    batch: tuple[int, ...] = option((), "batch sizes; default: 64, for networks that paint masks 8")
    scaling: Literal["strong", "weak"] = option("strong", "the batch is that of all workers, or of each")
    distribution: Literal["on", "off", "both"] = option("on", "share the data out, or all data to each")
    repeats: int = option(3, "runs of every cell", ge=1, le=1000)
    epochs: int = option(2, "epochs of a run", ge=1, le=1_000_000)
    steps: int | str = option(AUTO, "steps of an epoch: a number, all data, or auto, by a fixed amount of arithmetic")
    target: str = option("", "METRIC=VALUE: the time until a validation metric reaches it is reported")
    all_cores: bool = option(False, "divide all cores among the workers of each cell")
    keep_models: bool = option(False, "keep the networks of all runs")
    launcher: str = option("auto", "what starts the workers")
    hosts: str = option("", "machines and their workers")
    run: dict[str, Any] = option({}, "options of all runs")

    @classmethod
    def title(cls) -> str:
        """How messages call it."""
        return "study"

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Texts as lists and numbers, each value of a list once."""
        found, problems = {}, []
        for name, value in values.items():
            try:
                found[name] = _parsed(name, value)
            except ValueError as error:
                problems.append(Problem(name, f"expected {error}, received {shown(value)}"))
        if problems:
            raise OptionError(cls.title(), problems)
        return found

    def contradictions(self) -> Iterable[Problem]:
        """Numbers out of range within lists, and a target that cannot be read."""
        limits = [("workers", count, 65_536) for count in self.workers]
        limits += [("batch", size, 1_000_000) for size in self.batch]
        if not isinstance(self.steps, str):
            limits.append(("steps", self.steps, 1_000_000_000))
        for name, value, most in limits:
            if not 1 <= value <= most:
                yield Problem(name, f"{value} is out of range, expected 1 to {most:,}")
        if isinstance(self.steps, str) and self.steps not in (AUTO, ALL):
            yield Problem("steps", f"expected {AUTO}, {ALL} or a whole number, received '{self.steps}'")
        try:
            parse_target(self.target)
        except ConfigError as error:
            yield Problem("", str(error))

    def of_run(self, path: str) -> Any:
        """The value that all runs have of an option, by its path; None if it was not given."""
        wanted = tuple(path.split("."))
        for name, value in self.run.items():
            alias = locate(name)
            if alias is not None and alias.path == wanted:
                return value
            if alias is not None and alias.path == wanted[:1] and isinstance(value, Mapping):
                return value.get(wanted[-1])
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the content of ``study.toml``; what is left to the study is left out."""
        own = {name: value for name, value in self.values().items() if name != "run" and value not in ([], "")}
        run = {name: list(value) if isinstance(value, tuple) else value for name, value in self.run.items()}
        return {**own, **run}


OWN_NAMES = tuple(name for name in StudyOptions.model_fields if name != "run")


def is_set_by_study(name: str) -> bool:
    """Whether an option of a run is the study's to set."""
    alias = locate(name)
    path = ".".join(alias.path) if alias is not None else ""
    return path in BETTER or path in ("model.name", "engine.name") or path.startswith("strategy.")


def read_options(
    file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[StudyOptions, list[str]]:
    """The options by precedence (file, environment for those of runs, command line), and remarks for the user."""
    values = {} if file is None else read_toml(file)
    foreign = [name for name in (*values, *given) if name not in OWN_NAMES]
    unknown = [name for name in foreign if name not in WITHOUT_EFFECT and locate(name) is None]
    problems = [unknown_option(name, more=OWN_NAMES) for name in unknown]
    problems += [_set_by_study(name) for name in foreign if not problems and is_set_by_study(name)]
    if problems:
        raise ConfigError("\n".join(problems))
    own = {name: value for name, value in {**values, **given}.items() if name in OWN_NAMES}
    of_file = {name: typed(value, name) for name, value in values.items() if name not in OWN_NAMES}
    of_options = {name: value for name, value in given.items() if name not in OWN_NAMES}
    settings = gather(None, environment, {})
    of_environment = {name: value for name, value in settings.values.items() if not is_set_by_study(name)}
    run = {**of_file, **of_environment, **gather(None, {}, of_options).values}
    return StudyOptions(**own, run=run), settings.remarks


def _set_by_study(name: str) -> str:
    alias = locate(name)
    better = BETTER.get(".".join(alias.path), "") if alias is not None else ""
    return f"option '{name}' is set by the study for each of its runs: {f'give {better}' if better else 'leave it out'}"


def _parsed(name: str, value: Any) -> Any:
    """A value as its option wants it; lists may be one value or a text with commas."""
    field = StudyOptions.model_fields.get(name)
    kind = None if field is None else bare(field.annotation)
    if name == "steps":
        return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if typing.get_origin(kind) is not tuple:
        return parse_text(kind, value) if isinstance(value, str) and kind is int else value
    if isinstance(value, str):
        value = _strategies(value) if name == "strategy" else parse_text(kind, value)
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    if typing.get_args(kind)[0] is int:
        items = tuple(parse_text(int, item) if isinstance(item, str) else item for item in items)
    if not items:
        raise ConfigError(f"the grid is empty: {name} names nothing, expected at least one value")
    return tuple(dict.fromkeys(items))


def _strategies(text: str) -> tuple[str, ...]:
    """Strategies with commas between them; options of one stay with it (``bmuf:8,classical``)."""
    from ringlet.strategies.contract import STRATEGIES

    known = STRATEGIES.options()
    items: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if items and part.partition("=")[0] in known:
            items[-1] += f",{part}"
        else:
            items.append(part)
    return tuple(items)


def models_and_datasets(options: StudyOptions) -> list[tuple[str, str, Any]]:
    """(entry, network, data set) for every entry of ``model``: ``NAME`` or ``NAME@DATASET``."""
    default = options.of_run("dataset") or RunConfig().dataset.label
    found = []
    for entry in options.model:
        name, _, dataset = entry.partition("@")
        found.append((entry, name, dataset or default))
    return found


def parse_target(text: str) -> tuple[str, float] | None:
    """``METRIC=VALUE`` as (metric, value); None if the text is empty."""
    if not text:
        return None
    name, equals, number = (part.strip() for part in text.partition("="))
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not name or not equals or not abs(value) < float("inf"):
        raise ConfigError(f"target = '{text}': expected METRIC=VALUE, such as accuracy=0.97 or dice=90%")
    return name, value


def find_metric(name: str, known: Iterable[str]) -> str:
    """The name in the logs that ``name`` means: of validation, if nothing else is said and there is one."""
    from ringlet.optim.metric_names import resolve

    names = set(known)
    for wish in (f"val_{name}", name):
        try:
            return resolve(wish, names)
        except ConfigError:
            continue
    raise ConfigError(f"target: no metric '{name}' in these runs, expected one of {', '.join(sorted(names))}")
