"""Options as text: values that people write, types in words, and what is wrong with a value in one line."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ringlet.errors import nearest_names, show

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
}


# -- messages ---------------------------------------------------------------------------------------------------------
def explain(error: Mapping[str, Any], owner: str, known: Sequence[str]) -> str:
    """One entry of a failed validation in our words: what was given, what was expected."""
    kind, given = error["type"], shown(error.get("input"))
    if len(error["loc"]) > 1 and isinstance(error["loc"][1], str):
        return f"{error['loc'][1]} is neither text nor a number nor true or false"
    if kind == "extra_forbidden":
        return no_such_option(owner, str(error["loc"][0]), known)
    if kind == "missing":
        return f"{owner} needs a value"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        limit = error["ctx"][key]
        return f"{given} is out of range, expected {words} {f'{limit:,}' if isinstance(limit, int) else f'{limit:g}'}"
    if kind == "finite_number":
        return f"{given} is not a finite number"
    if kind == "literal_error":
        expected = str(error["ctx"]["expected"])
        return f"{given} is not known, expected {expected}.{_nearest(error.get('input'), expected)}"
    if kind == "string_too_short":
        return "the text is empty, expected a name or path"
    return f"expected {_EXPECTED.get(kind, 'a value of another kind')}, received {given}"


def no_such_option(owner: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is no option of ``owner``, with the nearest one."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"no such option.{hint} Options of {owner}: {', '.join(known) or 'none'}"


def shown(value: Any) -> str:
    """A value as a user wrote it, short enough for one line."""
    if isinstance(value, str | dict | list | tuple):
        return show(value)
    text = str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}…"


def _nearest(value: Any, expected: str) -> str:
    candidates = [word.strip("'") for part in expected.split(" or ") for word in part.split(", ")]
    near = get_close_matches(str(value).lower(), candidates, n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


# -- types as text ----------------------------------------------------------------------------------------------------
def bare(annotation: Any) -> Any:
    """The type behind an optional one."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(annotation) if part is not type(None))
    return annotation


def choices(annotation: Any) -> tuple[str, ...]:
    """The values of an option that has a fixed list of them, also where it takes several; else none."""
    kind = bare(annotation)
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def parse_text(annotation: Any, text: str) -> Any:
    """The value of an option written as text; ValueError says what was expected."""
    kind = bare(annotation)
    origin = typing.get_origin(kind)
    if kind is bool:
        lowered = text.strip().lower()
        if lowered not in _TRUE + _FALSE:
            raise ValueError("true or false")
        return lowered in _TRUE
    if kind in (int, float):
        return _number(kind, text, "a whole number" if kind is int else "a number")
    if origin is tuple:
        items = [item.strip() for item in text.split(",") if item.strip()]
        each = typing.get_args(kind)[0]
        return tuple(_number(each, item, "numbers with commas") if each in (int, float) else item for item in items)
    if origin is dict:
        return parse_pairs(text)
    return text


def parse_pairs(text: str) -> dict[str, Any]:
    """``levels=4,width=8`` as a table; ValueError says what was expected."""
    table: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError("name=value pairs with commas, such as depth=5,width=8")
        table[name.strip().replace("-", "_")] = guess(value.strip())
    return table


def guess(text: str) -> Any:
    """A number or true or false where the text reads as one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    lowered = text.lower()
    return lowered == "true" if lowered in ("true", "false") else text


def _number(kind: Any, text: str, words: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(words) from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, if any is."""
    return next(iter(nearest_names(name, known, least=0.6)), None)
