"""Reading a configuration file: its values, the line of each, and errors that show the line and say how to mend it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ringlet.errors import ConfigError

MAX_CONFIG_BYTES = 1 << 20
_BARE_WORD = re.compile(r"\s*[\w-]+\s*=\s*(?P<value>[A-Za-z_/~.][^\s#\"']*)")
_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)")
_WORDS = {"True": "true", "False": "false", "None": None, "null": None}


class TomlFile(NamedTuple):
    """The flat table of a file, and the line on which each name stands."""

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
    lines = {name.replace("-", "_"): line for name, line in _lines_of(table, text).items()}
    return TomlFile({name.replace("-", "_"): value for name, value in table.items()}, lines)


def read_toml(path: Path) -> dict[str, Any]:
    """The flat table of a TOML file; ``-`` in names becomes ``_``."""
    return read_toml_file(path).values


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


def _lines_of(names: Iterable[str], text: str) -> dict[str, int]:
    """The lines on which names of the top table are set.

    Each is the first that looks like it and before which the text is complete: a line within a text of several lines
    is not meant.
    """
    known = "|".join(map(re.escape, names))
    pattern = re.compile(rf"\s*(?:\[\s*)?[\"']?({known})[\"']?\s*(?:=|\.|\])")
    found: dict[str, int] = {}
    pending: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = pattern.match(line)
        if place and _is_complete("\n".join(pending)):
            found.setdefault(place[1], number)
            pending = []
        pending.append(line)
    return found


def _is_complete(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
