"""How the values of an option look, in words: for help and for files that people fill in."""

from __future__ import annotations

import types
import typing
from typing import Any

_WORDS = {int: "INT", float: "NUMBER", str: "TEXT", bool: "true|false"}


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


def form(annotation: Any) -> str:
    """``INT``, ``"TEXT"``, ``[INT, …]``: what to write in a TOML file."""
    kind = bare(annotation)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(f'"{value}"' for value in parts)
    if origin is tuple:
        return f"[{form(parts[0])}, …]"
    if origin is dict:
        return "{ NAME = VALUE, … }"
    return '"TEXT"' if kind is str else _WORDS.get(kind, "VALUE")
