"""Options with ranges: the fields of optimizers and schedulers, checked when an object is made.

A field is declared with one of the functions below (:func:`positive`, :func:`count`, :func:`flag`, …); :func:`check`
compares an object's values with these declarations and :func:`build` makes an object from a mapping. Both raise
:class:`ConfigError` with the value, what is allowed and all options of the owner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from ringlet.errors import ConfigError

Made = TypeVar("Made")


_NOUNS = {
    "number": "a number",
    "numbers": "numbers",
    "count": "a whole number",
    "flag": "true or false",
    "text": "a name",
}


@dataclass(frozen=True)
class Allowed:
    """What a field accepts: its kind (one of ``_NOUNS``), its interval, and whether it may be absent."""

    kind: str
    minimum: float = -math.inf
    maximum: float = math.inf
    open_minimum: bool = False
    open_maximum: bool = False
    optional: bool = False
    needs: str | None = None

    def __str__(self) -> str:
        return _NOUNS[self.kind] + self._interval() + (" (or nothing)" if self.optional else "")

    def _interval(self) -> str:
        if self.kind in ("flag", "text") or (self.minimum == -math.inf and self.maximum == math.inf):
            return ""
        if self.maximum == math.inf:
            return f" {'>' if self.open_minimum else '>='} {self.minimum:g}"
        left, right = "(" if self.open_minimum else "[", ")" if self.open_maximum else "]"
        return f" in {left}{self.minimum:g}, {self.maximum:g}{right}"

    def accepts(self, value: object) -> bool:
        """Whether ``value`` has the right type and lies in the interval. NaN and infinities never do."""
        if value is None:
            return self.optional
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str) and bool(value)
        if self.kind == "numbers":
            return isinstance(value, tuple) and all(self._fits(part, (int, float)) for part in value)
        return self._fits(value, (int,) if self.kind == "count" else (int, float))

    def _fits(self, value: object, types: tuple[type, ...]) -> bool:
        if isinstance(value, bool) or not isinstance(value, types) or not math.isfinite(cast(float, value)):
            return False
        return self._inside(cast(float, value))

    def _inside(self, value: float) -> bool:
        above = value > self.minimum if self.open_minimum else value >= self.minimum
        below = value < self.maximum if self.open_maximum else value <= self.maximum
        return above and below


def _declare(default: Any, allowed: Allowed) -> Any:
    return field(default=default, metadata={"allowed": allowed})


def positive(default: float) -> float:
    """A field for a number above zero."""
    return cast(float, _declare(default, Allowed("number", 0.0, open_minimum=True)))


def non_negative(default: float) -> float:
    """A field for a number of at least zero."""
    return cast(float, _declare(default, Allowed("number", 0.0)))


def fraction(default: float) -> float:
    """A field for a number in [0, 1): momentum and other shares that are kept."""
    return cast(float, _declare(default, Allowed("number", 0.0, 1.0, open_maximum=True)))


def shrinking(default: float) -> float:
    """A field for a factor in (0, 1)."""
    return cast(float, _declare(default, Allowed("number", 0.0, 1.0, open_minimum=True, open_maximum=True)))


def required_number(minimum: float = -math.inf) -> float:
    """A field for a number of at least ``minimum`` that has no default."""
    return cast(float, _declare(MISSING, Allowed("number", minimum)))


def optional_number(minimum: float = -math.inf) -> float | None:
    """A field for a number of at least ``minimum``, absent unless given."""
    return cast("float | None", _declare(None, Allowed("number", minimum, optional=True)))


def numbers(minimum: float = -math.inf) -> tuple[float, ...]:
    """A field for a tuple of numbers of at least ``minimum``, empty unless given."""
    return cast("tuple[float, ...]", _declare((), Allowed("numbers", minimum)))


def count(default: int, minimum: int = 0) -> int:
    """A field for a whole number of at least ``minimum``."""
    return cast(int, _declare(default, Allowed("count", minimum)))


def optional_count(minimum: int = 1) -> int | None:
    """A field for a whole number of at least ``minimum``, absent unless given."""
    return cast("int | None", _declare(None, Allowed("count", minimum, optional=True)))


def flag(default: bool, needs: str | None = None) -> bool:
    """A field for true or false; true asks for the field ``needs`` to be above zero."""
    return cast(bool, _declare(default, Allowed("flag", needs=needs)))


def optional_text() -> str | None:
    """A field for a name, absent unless given."""
    return cast("str | None", _declare(None, Allowed("text", optional=True)))


def declared(owner: type) -> dict[str, Field[Any]]:
    """The fields of ``owner`` (a dataclass) that were declared with this module, by name."""
    return {entry.name: entry for entry in fields(owner) if "allowed" in entry.metadata}


def describe(owner: type) -> str:
    """All options of ``owner`` with what they accept and their defaults, on one line."""
    parts = [f"{name}: {entry.metadata['allowed']}{_default(entry)}" for name, entry in declared(owner).items()]
    return "; ".join(parts) if parts else "none"


def _default(entry: Field[Any]) -> str:
    if entry.default is MISSING:
        return " (required)"
    if entry.default is None or entry.default == ():
        return ""
    return f" (default {entry.default:g})" if type(entry.default) is float else f" (default {entry.default})"


def check(instance: Any, owner: str) -> None:
    """Compare all values of a frozen dataclass with their declarations; whole numbers become floats where due."""
    for name, entry in declared(type(instance)).items():
        allowed: Allowed = entry.metadata["allowed"]
        value = getattr(instance, name)
        if not allowed.accepts(value):
            raise ConfigError(
                f"{owner}: {name}={value!r} is not allowed; expected {allowed}. Options of {owner}: "
                f"{describe(type(instance))}"
            )
        if allowed.kind == "number" and value is not None:
            object.__setattr__(instance, name, float(value))
    _check_needs(instance, owner)


def _check_needs(instance: Any, owner: str) -> None:
    for name, entry in declared(type(instance)).items():
        needed = entry.metadata["allowed"].needs
        if needed is not None and getattr(instance, name) and not getattr(instance, needed) > 0:
            raise ConfigError(
                f"{owner}: {name}=True needs {needed} > 0, but {needed}={getattr(instance, needed)!r}; "
                f"give {needed} (0.9 is usual) or leave {name} out"
            )


def build(maker: type[Made], owner: str, values: Mapping[str, object]) -> Made:
    """Make ``maker`` from ``values``; a value that is no option of it is an error."""
    known = declared(maker)
    for name, value in values.items():
        if name not in known:
            matches = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" Did you mean '{matches[0]}'?" if matches else ""
            raise ConfigError(
                f"{owner} has no option '{name}' (given: {value!r}).{hint} Its options: {describe(maker)}"
            )
    missing = [name for name, entry in known.items() if entry.default is MISSING and values.get(name) is None]
    if missing:
        raise ConfigError(f"{owner} needs a value for '{missing[0]}'. Its options: {describe(maker)}")
    return maker(**values)
