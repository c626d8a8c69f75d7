"""A commented TOML file of all options, for people to fill in: what ``ringlet init`` writes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from ringlet.config.forms import form
from ringlet.config.options import SECTIONS

WIDTH = 100
HEADER = """\
Options of a run, for: ringlet train FILE

A line that begins with "# " explains. A line that begins with "#" and a name holds a default:
remove the "#" and change the value. What has no default is explained only: to set it, write a
line of that form. RINGLET_<OPTION> in the environment and options on the command line win over
this file."""


def template(given: Mapping[str, Any]) -> str:
    """The text of such a file; ``given`` values are set, all others stand there as comments."""
    parts = [_comment(HEADER)]
    for section in SECTIONS:
        title = (section.__doc__ or "").strip()
        parts.append(f"\n# ---- {title} {'-' * max(WIDTH - len(title) - 8, 0)}\n")
        parts += [_option(name, field, given) for name, field in section.model_fields.items()]
    return "\n".join(parts) + "\n"


def _option(name: str, field: Any, given: Mapping[str, Any]) -> str:
    """What the option means, then its line."""
    meaning = _comment(_sentence(str(field.description)))
    if given.get(name) is not None:
        return f"{meaning}\n{_line(name, given[name])}"
    if field.default is None:
        return f"{meaning}\n#   {name} = {form(field.annotation)}"
    return f"{meaning}\n#{_line(name, field.default)}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comment(text: str) -> str:
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH - 2) or [""]]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _line(name: str, value: Any) -> str:
    """``name = value`` on one line."""
    return f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    import tomli_w

    if isinstance(value, dict):
        return "{ " + ", ".join(_line(key, item) for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
