"""What a study is asked to do: its own options and those of its runs, from the command line or a TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from ringlet.config import RunConfig, gather, read_toml
from ringlet.config.explain import show, unknown_option
from ringlet.errors import ConfigError, UnknownNameError
from ringlet.study.grid import Scaling

Distribution = Literal["on", "off", "both"]
SCALINGS = ("strong", "weak")
DISTRIBUTIONS = ("on", "off", "both")
AUTO, ALL = "auto", "all"
MAX_RUNS = 10_000
OWN_RUN_OPTIONS = (
    *("model", "engine", "strategy", "local_batch_size", "global_batch_size", "batch_size", "num_epochs"),
    *("steps_per_epoch", "partition", "run_dir", "history_file", "timeline", "profile", "resume", "evaluate_only"),
    "parallel",
)
"""Options of a run that a study sets itself."""


@dataclass(frozen=True)
class StudyOptions:
    """A checked request. ``run`` holds options of all runs, by the names of RunConfig."""

    model: tuple[str, ...] = ("vgg1dobn",)
    workers: tuple[int, ...] = ()
    """Empty: 1, 2, 4 … up to the cores."""
    engine: tuple[str, ...] = ("native",)
    strategy: tuple[str, ...] = ("sync",)
    batch: tuple[int, ...] = ()
    """Empty: 64, for networks that paint masks 8."""
    scaling: Scaling = "strong"
    distribution: Distribution = "on"
    repeats: int = 3
    epochs: int = 2
    steps: int | str = AUTO
    """A number, ``all`` data, or ``auto``: as many as fit a fixed amount of arithmetic."""
    target: str = ""
    """``METRIC=VALUE``: the time until a validation metric reaches it is reported."""
    all_cores: bool = False
    keep_models: bool = False
    launcher: str = "auto"
    hosts: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = _out_of_range(self)
        if problems:
            raise ConfigError("\n".join(problems))
        for kind, value, known in (
            ("scaling", self.scaling, SCALINGS),
            ("distribution", self.distribution, DISTRIBUTIONS),
        ):
            if value not in known:
                raise UnknownNameError(kind, value, known)
        parse_target(self.target)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the content of ``study.toml``; what is left to the study is left out."""
        own = {name: value for name in OWN_NAMES if (value := getattr(self, name)) not in ((), "")}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        run = {name: list(value) if isinstance(value, tuple) else value for name, value in self.run.items()}
        return {**plain, **run}


OWN_NAMES = tuple(entry.name for entry in fields(StudyOptions) if entry.name != "run")
_LISTS: Mapping[str, type] = {"model": str, "workers": int, "engine": str, "strategy": str, "batch": int}
_NUMBERS = ("repeats", "epochs")
_FLAGS = ("all_cores", "keep_models")


def read_options(
    file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[StudyOptions, list[str]]:
    """The options by precedence (file, environment for those of runs, command line), and remarks for the user."""
    values = {} if file is None else read_toml(file)
    problems = [unknown_option(name, [*OWN_NAMES, *RunConfig.names()]) for name in values if not _is_known(name)]
    problems += [_set_by_study(name) for name in (*values, *given) if name in OWN_RUN_OPTIONS and name not in OWN_NAMES]
    if problems:
        raise ConfigError("\n".join(problems))
    own = {name: _own_value(name, value) for name, value in {**values, **given}.items() if name in OWN_NAMES}
    of_file = {name: value for name, value in values.items() if name not in OWN_NAMES}
    of_options = {name: value for name, value in given.items() if name not in OWN_NAMES}
    settings = gather(None, environment, {})
    remarks = settings.remarks
    run = {**_checked(of_file), **_without_own(settings.values), **gather(None, {}, _checked(of_options)).values}
    return StudyOptions(**own, run=run), remarks


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a TOML file, as a run would read them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _without_own(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in OWN_RUN_OPTIONS}


def _is_known(name: str) -> bool:
    return name in OWN_NAMES or name in RunConfig.model_fields


def _set_by_study(name: str) -> str:
    better = {
        "num_epochs": "epochs",
        "steps_per_epoch": "steps",
        "partition": "distribution",
        "run_dir": "study_dir",
        "local_batch_size": "batch with scaling = weak",
        "global_batch_size": "batch with scaling = strong",
        "batch_size": "batch with scaling = weak",
    }.get(name)
    return f"option '{name}' is set by the study for each of its runs: {f'give {better}' if better else 'leave it out'}"


def _own_value(name: str, value: Any) -> Any:
    if name in _LISTS:
        return _as_list(name, value)
    if name in _NUMBERS:
        return _as_number(name, value)
    if name == "steps":
        return value if value in (AUTO, ALL) else _as_number(name, value, f"{AUTO}, {ALL} or a whole number")
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: expected true or false, received {show(value)}")
        return value
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected text, received {show(value)}")
    return value


def _as_list(name: str, value: Any) -> tuple[Any, ...]:
    """A list, one value, or text with commas; parameters of a strategy stay with it (``bmuf:8,classical``)."""
    if isinstance(value, str):
        items: list[Any] = []
        for part in filter(None, (part.strip() for part in value.split(","))):
            if name == "strategy" and items and ("=" in part or part == "classical"):
                items[-1] += f",{part}"
            else:
                items.append(part)
    else:
        items = list(value) if isinstance(value, list | tuple) else [value]
    if _LISTS[name] is int:
        items = [_as_number(name, item) for item in items]
    elif not all(isinstance(item, str) and item for item in items):
        raise ConfigError(f"{name}: expected names, received {show(value)}")
    if not items:
        raise ConfigError(f"the grid is empty: {name} names nothing, expected at least one value")
    return tuple(dict.fromkeys(items))


def _as_number(name: str, value: Any, words: str = "a whole number") -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{name}: expected {words}, received {show(value)}")


def _out_of_range(options: StudyOptions) -> list[str]:
    limits = [("workers", count, 65_536) for count in options.workers]
    limits += [("batch", size, 1_000_000) for size in options.batch]
    limits += [("repeats", options.repeats, 1000), ("epochs", options.epochs, 1_000_000)]
    if not isinstance(options.steps, str):
        limits.append(("steps", options.steps, 1_000_000_000))
    return [
        f"{name}: {value} is out of range, expected 1 to {most:,}"
        for name, value, most in limits
        if not 1 <= value <= most
    ]


def models_and_datasets(options: StudyOptions) -> list[tuple[str, str, str]]:
    """(entry, network, data set) for every entry of ``model``: ``NAME`` or ``NAME@DATASET``."""
    default = cast("str", options.run.get("dataset", RunConfig.model_fields["dataset"].default))
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
