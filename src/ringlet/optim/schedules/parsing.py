"""Schedules from the names and options of a command line: ``warm_up,reduce_lr_on_plateau`` and ``warm_up_epochs=3``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from ringlet.errors import ConfigError, UnknownNameError
from ringlet.optim.options import build
from ringlet.optim.schedules.monitors import EarlyStopping, ModelCheckpoint, ReduceOnPlateau, StopAtLoss
from ringlet.optim.schedules.rates import Cosine, ReduceEveryNEpochs, Step, WarmUp
from ringlet.optim.schedules.rule import Rule
from ringlet.optim.schedules.schedule import Schedule

_RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        WarmUp,
        Cosine,
        Step,
        ReduceEveryNEpochs,
        ReduceOnPlateau,
        EarlyStopping,
        StopAtLoss,
        ModelCheckpoint,
    )
}
_DERIVED = {("warm_up", "size"), ("cosine", "start")}
"""Fields that follow from the run and are no options."""


def names() -> list[str]:
    """The names of all schedulers."""
    return list(_RULES)


def options() -> dict[str, Any]:
    """All options of all schedulers with their defaults: ``warm_up_epochs``, ``early_stopping_patience``, …"""
    return {key: default for key, (_, _, default) in _option_table().items()}


def parse_schedulers(
    schedulers: str | Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    learning_rate: float,
    num_epochs: int | None = None,
    size: int = 1,
) -> Schedule:
    """The schedule that ``schedulers`` (a comma list, or a sequence) and ``options`` describe.

    ``learning_rate`` is the full rate, after any scaling by the number of workers ``size``; ``num_epochs`` is where
    ``cosine`` ends unless ``cosine_epochs`` says otherwise. Option names are ``<scheduler>_<option>``, with ``-`` or
    ``_``; a value of None stands for the default. Options of schedulers that are not used have no effect.
    ``cosine`` begins where ``warm_up`` ends, when both are there.
    """
    chosen = _chosen_names(schedulers)
    values = _sorted_options(options or {})
    if "warm_up" in chosen:
        values["warm_up"]["size"] = size
    if "cosine" in chosen:
        _place_cosine(chosen, values, num_epochs)
    if "step" in chosen and "milestones" in values["step"]:
        values["step"]["milestones"] = _parse_milestones(values["step"]["milestones"])
    schedule = Schedule(learning_rate, [_build(name, values[name]) for name in chosen])
    _check_start(schedule)
    return schedule


def _chosen_names(schedulers: str | Sequence[str]) -> list[str]:
    given = schedulers.split(",") if isinstance(schedulers, str) else list(schedulers)
    chosen = []
    for entry in given:
        name = entry.strip().lower().replace("-", "_")
        if not name:
            continue
        if name not in _RULES:
            raise UnknownNameError("scheduler", entry.strip(), _RULES)
        if name in chosen:
            raise ConfigError(f"scheduler '{name}' is given twice in '{','.join(given)}'; give it once")
        chosen.append(name)
    return chosen


def _option_table() -> dict[str, tuple[str, str, Any]]:
    return {
        f"{name}_{entry.name}": (name, entry.name, None if entry.default is MISSING else entry.default)
        for name, rule in _RULES.items()
        for entry in fields(rule)  # type: ignore[arg-type]
        if (name, entry.name) not in _DERIVED
    }


def _sorted_options(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    table = _option_table()
    values: dict[str, dict[str, Any]] = {name: {} for name in _RULES}
    for given, value in options.items():
        key = given.replace("-", "_")
        if key not in table:
            matches = get_close_matches(key, table, n=1, cutoff=0.5)
            hint = f" Did you mean '{matches[0]}'?" if matches else ""
            raise ConfigError(f"no scheduler has an option '{given}'.{hint} Options: {', '.join(table)}")
        if value is not None:
            scheduler, option, _ = table[key]
            values[scheduler][option] = value
    return values


def _place_cosine(chosen: Sequence[str], values: dict[str, dict[str, Any]], num_epochs: int | None) -> None:
    cosine = values["cosine"]
    if "epochs" not in cosine and num_epochs is not None:
        cosine["epochs"] = num_epochs
    if "epochs" not in cosine:
        raise ConfigError("scheduler 'cosine' needs to know where it ends: give num_epochs or cosine_epochs")
    if "warm_up" in chosen and "steps" not in values["warm_up"]:
        cosine["start"] = _build("warm_up", values["warm_up"]).epochs  # type: ignore[attr-defined]


def _parse_milestones(value: object) -> tuple[float, ...]:
    """``30,60,80`` or any sequence of numbers."""
    parts: Sequence[Any] = [value]
    if isinstance(value, str):
        parts = value.split(",")
    elif isinstance(value, Sequence):
        parts = value
    try:
        return tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        raise ConfigError(
            f"scheduler 'step': milestones={value!r} is not allowed; expected epochs, for instance 30,60,80"
        ) from None


def _build(name: str, values: Mapping[str, Any]) -> Rule:
    return build(_RULES[name], f"scheduler '{name}'", values)


def _check_start(schedule: Schedule) -> None:
    for rule in schedule.rules:
        if isinstance(rule, WarmUp) and rule.start_lr is not None and rule.start_lr > schedule.base_learning_rate:
            raise ConfigError(
                f"scheduler 'warm_up': start_lr={rule.start_lr:g} is above the learning rate "
                f"{schedule.base_learning_rate:g}; a warm-up rises, so give a smaller start"
            )
