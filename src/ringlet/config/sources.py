"""Where values come from: defaults < a TOML file < the environment < options. Later ones win, each keeps its origin."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from ringlet.config.assembly import Given
from ringlet.config.names import WITHOUT_EFFECT, flat_names, from_text, locate, typed, unknown_option
from ringlet.config.run_config import RunConfig
from ringlet.config.sections import BY_NAME
from ringlet.errors import ConfigError
from ringlet.option_text import shown

ENVIRONMENT_PREFIX = "RINGLET_"
MAX_CONFIG_BYTES = 1 << 20
_FILE, _ENVIRONMENT, _OPTIONS = 1, 2, 3
_BARE_WORD = re.compile(r"\s*[\w.-]+\s*=\s*(?P<value>[A-Za-z_/~.][^\s#\"']*)")
_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)")
_HEADER = re.compile(r"\s*\[{1,2}\s*([\w.\"'-]+)\s*\]{1,2}")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")
_WORDS = {"True": "true", "False": "false", "None": None, "null": None}


@dataclass
class Settings:
    """Values gathered from all sources, with the place each came from and remarks for the user."""

    given: list[Given] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, Any]:
        """What was given, by name; of several sources the last."""
        return {one.name: one.value for one in self.given}

    def build(self) -> RunConfig:
        """The validated configuration."""
        return RunConfig.from_given(self.given)


def gather(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Collect values by precedence; problems of spelling are raised at once, problems of range by ``build``."""
    settings = Settings()
    problems: list[str] = []
    if config_file is not None:
        settings.given += _from_file(read_toml_file(config_file), config_file)
    for name, text, variable in _from_environment(environment or {}, settings.remarks):
        _parse_into(settings, Given(name, text, variable, _ENVIRONMENT), problems)
    for name, value in (options or {}).items():
        _parse_into(settings, Given(name, value, f"--{name.replace('_', '-')}", _OPTIONS), problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def _parse_into(settings: Settings, given: Given, problems: list[str]) -> None:
    if given.name not in WITHOUT_EFFECT and locate(given.name) is None:
        problems.append(unknown_option(given.name, given.origin))
        return
    try:
        value = from_text(given.name, given.value) if isinstance(given.value, str) else typed(given.value, given.name)
        settings.given.append(given._replace(value=value))
    except ValueError as error:
        problems.append(f"{given.origin}: expected {error}, received {shown(given.value)}")


def is_option(variable: str) -> bool:
    """Whether an environment variable gives an option of a run."""
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
    return variable.startswith(ENVIRONMENT_PREFIX) and (name in WITHOUT_EFFECT or locate(name) is not None)


def _from_environment(environment: Mapping[str, str], remarks: list[str]) -> list[tuple[str, str, str]]:
    """(option, text, variable) of every variable that names an option; a near miss becomes a remark.

    ``RINGLET_SEED``; two underscores stand for the point of a path, as in ``RINGLET_OPTIMIZER__TRUST``.
    """
    found = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or not environment[variable]:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if is_option(variable):
            found.append((name, environment[variable], variable))
        elif near := get_close_matches(name, flat_names(), n=1, cutoff=0.9):
            remarks.append(f"environment variable {variable} is no option; {ENVIRONMENT_PREFIX}{near[0].upper()} is")
    return found


# -- TOML -------------------------------------------------------------------------------------------------------------
class TomlFile(NamedTuple):
    """The table of a file, and the line on which each path (with points) is set."""

    values: dict[str, Any]
    lines: dict[str, int]


def read_toml_file(path: Path) -> TomlFile:
    """A configuration file with the lines of its names; ``-`` in names becomes ``_``."""
    text = _read_text(path)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        message = f"configuration file '{path}' is not valid TOML: {error}"
        raise ConfigError(message + _advice(text, str(error))) from None
    return TomlFile(_with_underscores(table), _lines_of(text))


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file; ``-`` in names becomes ``_``."""
    return read_toml_file(path).values


def _with_underscores(table: Mapping[str, Any]) -> dict[str, Any]:
    sections = {name: value for name, value in table.items() if isinstance(value, dict)}
    return {
        name.replace("-", "_"): _with_underscores(value) if name in sections else value for name, value in table.items()
    }


def _from_file(file: TomlFile, path: Path) -> Iterator[Given]:
    """Every value of a file under its own name, so that messages can tell its line."""
    for name, value in _leaves(file.values):
        line = file.lines.get(name)
        place = f"{path}, line {line}: {name}" if line is not None else f"{path}: {name}"
        yield Given(name, typed(value, name), place, _FILE)


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        section = BY_NAME.get(name)
        if section is None or not isinstance(value, dict):
            yield name, value
            continue
        for option, item in value.items():
            if section.kind == "set" and isinstance(item, dict):
                yield f"{name}.{option}", True
                yield from ((f"{name}.{option}.{inner}", one) for inner, one in item.items())
            else:
                yield f"{name}.{option}", item


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ConfigError(f"configuration file '{path}' is a folder: give the file, such as '{path}/config.toml'")
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(
                f"configuration file '{path}' is larger than {MAX_CONFIG_BYTES} bytes; is it the right file?"
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"configuration file '{path}' does not exist. `ringlet init` writes one") from None
    except OSError as error:
        raise ConfigError(f"configuration file '{path}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"configuration file '{path}' is not valid TOML: it is no text. Give the file that `ringlet init` wrote, "
            "or config.toml of a run"
        ) from None


def _advice(text: str, error: str) -> str:
    """The line that is wrong, and what usually helps."""
    place = _PLACE.search(error)
    if place is None or place["line"] is None:
        return ""
    line = text.splitlines()[int(place["line"]) - 1].strip()[:80]
    word = _BARE_WORD.match(line)
    if word is None:
        return f"\n{line}\nExpected lines such as: num_epochs = 5"
    value = word["value"]
    if value in _WORDS:
        right = _WORDS[value]
        return f"\n{line}\n" + ("Leave the line out: that is the default" if right is None else f"Write {right}")
    return f'\n{line}\nText stands in quotes: "{value}"'


def _lines_of(text: str) -> dict[str, int]:
    """The lines on which names are set, by their paths.

    Only lines before which the text is complete count: one within a text of several lines is not meant.
    """
    found: dict[str, int] = {}
    pending: list[str] = []
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        header, assigned = _HEADER.match(line), _KEY.match(line)
        if (header or assigned) and _is_complete("\n".join(pending)):
            pending = []
            if header:
                section = f"{_plain(header[1])}."
                found.setdefault(section[:-1], number)
            elif assigned:
                found.setdefault(section + _plain(assigned[1]), number)
        pending.append(line)
    return found


def _plain(name: str) -> str:
    return name.replace("-", "_").replace('"', "").replace("'", "")


def _is_complete(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
