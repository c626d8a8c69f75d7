"""One clear line per wrong value: what was given and where, what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

_TYPE_NAMES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
}
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain(errors: Sequence[Mapping[str, Any]], config_type: type[BaseModel], origins: Mapping[str, str]) -> str:
    """The problems of a failed validation, one line each, in order, without repetition."""
    names = list(config_type.model_fields)
    lines = []
    for error in errors:
        name = str(error["loc"][0]) if error["loc"] else "configuration"
        lines.append(_line(error, origins.get(name, name), name, names))
    return "\n".join(dict.fromkeys(lines))


def unknown_option(name: str, known: Sequence[str], origin: str | None = None) -> str:
    """The message for a name that is not an option, with the nearest one."""
    matches = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{matches[0]}'?" if matches else " See `ringlet train --help` for all options."
    place = f" ({origin})" if origin and origin != name else ""
    return f"unknown option '{name}'{place}.{hint}"


def show(value: Any) -> str:
    """A value as a user wrote it, short enough for one line."""
    text = repr(value) if isinstance(value, str | dict | list | tuple) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}…"


def _line(error: Mapping[str, Any], place: str, name: str, names: Sequence[str]) -> str:
    kind, given = error["type"], show(error.get("input"))
    if len(error["loc"]) > 1 and isinstance(error["loc"][1], str):
        return f"{place}: {error['loc'][1]} is neither text nor a number nor true or false"
    if kind == "extra_forbidden" and isinstance(error.get("input"), dict):
        return f"{place}: a configuration has no sections. Leave the line [{name}] out: all options stand side by side"
    if kind == "extra_forbidden":
        return unknown_option(name, names, place)
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{place}: {given} is out of range, expected {words} {error['ctx'][key]}"
    if kind == "finite_number":
        return f"{place}: {given} is not a finite number"
    if kind == "literal_error":
        expected = str(error["ctx"]["expected"])
        near = _nearest(error.get("input"), expected)
        return f"{place}: {given} is not known, expected {expected}.{near}"
    if kind == "string_too_short":
        return f"{place}: the text is empty, expected a name or path"
    expected = _TYPE_NAMES.get(kind, "a value of another kind")
    return f"{place}: expected {expected}, received {given}"


def _nearest(value: Any, expected: str) -> str:
    candidates = [word.strip("'") for part in expected.split(" or ") for word in part.split(", ")]
    matches = get_close_matches(str(value).lower(), candidates, n=1, cutoff=0.5)
    return f" Did you mean '{matches[0]}'?" if matches else ""
