"""Where values come from: defaults < a TOML file < the environment < options. Later ones win, each keeps its origin."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ringlet.config.explain import show, unknown_option
from ringlet.config.forms import bare
from ringlet.config.run_config import OTHER_NAMES, RunConfig
from ringlet.config.toml_file import read_toml_file
from ringlet.errors import ConfigError

ENVIRONMENT_PREFIX = "RINGLET_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass
class Settings:
    """Values gathered from all sources, with the place each came from and remarks for the user."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, origin: str) -> None:
        """Take a value; it replaces one from an earlier source."""
        self.values[name] = value
        self.origins[name] = origin

    def origin(self, name: str) -> str | None:
        """Where the value of an option came from; None: from nowhere, it is the default or follows from others."""
        other = next((other for other, own in OTHER_NAMES.items() if own == name and other in self.values), name)
        return self.origins.get(name, self.origins.get(other))

    def build(self) -> RunConfig:
        """The validated configuration."""
        return RunConfig(self.origins, **self.values)


def gather(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Collect values by precedence; problems of spelling are raised at once, problems of range by ``build``."""
    settings = Settings()
    problems: list[str] = []
    if config_file is not None:
        file = read_toml_file(config_file)
        for name, value in file.values.items():
            line = f", line {file.lines[name]}" if name in file.lines else ""
            settings.add(name, _from_toml(name, value), f"{config_file}{line}: {name}")
    for name, text, variable in _from_environment(environment or {}, settings.remarks):
        _parse_into(settings, name, text, variable, problems)
    for name, value in (options or {}).items():
        _parse_into(settings, name, value, f"--{name.replace('_', '-')}", problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def parse_text(name: str, text: str) -> Any:
    """The value of an option written as text; ValueError says what was expected."""
    annotation = bare(RunConfig.model_fields[name].annotation)
    origin = typing.get_origin(annotation)
    if annotation is bool:
        return _parse_bool(text)
    if annotation is int:
        return _parse_number(int, text, "a whole number")
    if annotation is float:
        return _parse_number(float, text, "a number")
    if origin is tuple:
        items = [item.strip() for item in text.split(",") if item.strip()]
        kind = typing.get_args(annotation)[0]
        return tuple(
            _parse_number(kind, item, "numbers with commas") if kind in (int, float) else item for item in items
        )
    if origin is dict:
        return _parse_table(text)
    return text


def _parse_into(settings: Settings, name: str, value: Any, origin: str, problems: list[str]) -> None:
    if name not in RunConfig.model_fields:
        problems.append(unknown_option(name, RunConfig.names(), origin))
        return
    try:
        settings.add(name, parse_text(name, value) if isinstance(value, str) else value, origin)
    except ValueError as error:
        problems.append(f"{origin}: expected {error}, received {show(value)}")


def _from_toml(name: str, value: Any) -> Any:
    """TOML knows types; only lists (tuples here) and comma lists need a hand."""
    known = RunConfig.model_fields.get(name)
    if known is None or typing.get_origin(bare(known.annotation)) is not tuple:
        return value
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return tuple(value) if isinstance(value, list) else value


def _from_environment(environment: Mapping[str, str], remarks: list[str]) -> list[tuple[str, str, str]]:
    """(option, text, variable) of every variable that names an option; a near miss becomes a remark."""
    found = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or not environment[variable]:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in RunConfig.model_fields:
            found.append((name, environment[variable], variable))
        elif near := get_close_matches(name, RunConfig.names(), n=1, cutoff=0.9):
            remarks.append(f"environment variable {variable} is no option; {ENVIRONMENT_PREFIX}{near[0].upper()} is")
    return found


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE + _FALSE:
        raise ValueError("true or false")
    return lowered in _TRUE


def _parse_number(kind: type[int] | type[float], text: str, words: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(words) from None


def _parse_table(text: str) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError("name=value pairs with commas, such as depth=5,width=8")
        table[name.strip().replace("-", "_")] = _guess(value.strip())
    return table


def _guess(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    lowered = text.lower()
    return lowered == "true" if lowered in ("true", "false") else text
