"""The space of a search: options with the values they may have, and the values of a trial as a pure function.

Written as texts: ``log(1e-4,1e-1)`` (uniform in the exponent), ``uniform(0,0.5)``, ``int(1,8)``, or a list of values
with commas, or with bars where the values have commas of their own (``warm_up,cosine|step``). The value of a trial
follows from the seed, the number of the trial and the name of the option alone, so neither the order of trials nor
other options change it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from ringlet.config import RunConfig
from ringlet.config.assembly import Given
from ringlet.config.names import annotation_of, from_text, locate, typed, unknown_option
from ringlet.config.sections import BY_NAME
from ringlet.errors import ConfigError
from ringlet.option_text import bare, shown

Scale = Literal["log", "uniform", "int"]
FORMS = "log(LOW,HIGH), uniform(LOW,HIGH), int(LOW,HIGH) or values with commas"
_RANGE = re.compile(r"\s*(?P<scale>log|uniform|int)\s*\((?P<bounds>[^()]*)\)\s*")
_DIGITS = 4
"""Of a number that was drawn: what is written down is exactly what is trained with."""
_BITS = 53
_MOST_TRIALS = 1_000_000
_MOST_ATTEMPTS = 1000
"""To draw a configuration that is not there yet."""
ABOVE = 10
"""The source of values of a trial: above file, environment and options."""


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included; ``is_whole`` rounds them."""

    low: float
    high: float
    scale: Scale
    is_whole: bool

    def at(self, share: float) -> float | int:
        """The number at ``share`` (from 0, below 1) of the way."""
        if self.is_whole and self.scale != "log":
            return int(self.low) + int(share * (int(self.high) - int(self.low) + 1))
        if self.scale == "log":
            number = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            number = self.low + share * (self.high - self.low)
        return self.rounded(number)

    def rounded(self, number: float) -> float | int:
        """A number of the range as it is written down and trained with."""
        if self.is_whole:
            return round(min(max(number, self.low), self.high))
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)

    def __str__(self) -> str:
        return f"{self.scale}({_written(self.low)},{_written(self.high)})"


@dataclass(frozen=True)
class Dimension:
    """One option and its values: a range, or a few of them."""

    name: str
    values: Range | tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at ``share`` of the way."""
        return self.values.at(share) if isinstance(self.values, Range) else self.values[int(share * len(self.values))]

    def size(self) -> int | None:
        """How many values there are; None: more than anyone counts."""
        if not isinstance(self.values, Range):
            return len(self.values)
        return int(self.values.high) - int(self.values.low) + 1 if self.values.is_whole else None

    def pairs(self) -> list[tuple[str, Any]]:
        """The name with every value, of which there must be few."""
        if isinstance(self.values, Range):
            return [(self.name, value) for value in range(int(self.values.low), int(self.values.high) + 1)]
        return [(self.name, value) for value in self.values]

    def to_plain(self) -> Any:
        """As :func:`parse_space` takes it."""
        if isinstance(self.values, Range):
            return str(self.values)
        return [list(value) if isinstance(value, tuple) else value for value in self.values]


@dataclass(frozen=True)
class Space:
    """All options that a search varies."""

    dimensions: tuple[Dimension, ...]

    def size(self) -> int | None:
        """How many configurations there are; None: more than anyone counts."""
        counts = [one.size() for one in self.dimensions]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    def draw(self, seed: int, num_trials: int) -> list[dict[str, Any]]:
        """The values of all trials, no configuration twice; the whole space, if it has no more of them."""
        size = self.size()
        if size is not None and size <= num_trials:
            everything = [dict(values) for values in product(*(one.pairs() for one in self.dimensions))]
            return sorted(everything, key=lambda values: share_of(seed, 0, str(values)))
        found: dict[str, dict[str, Any]] = {}
        for trial in range(1, num_trials + 1):
            attempts = (self._drawn(seed, trial, attempt) for attempt in range(_MOST_ATTEMPTS))
            values = next((values for values in attempts if str(values) not in found), None)
            if values is not None:
                found[str(values)] = values
        return list(found.values())

    def _drawn(self, seed: int, trial: int, attempt: int) -> dict[str, Any]:
        key = trial + attempt * _MOST_TRIALS
        return {one.name: one.at(share_of(seed, key, one.name)) for one in self.dimensions}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {one.name: one.to_plain() for one in self.dimensions}


def share_of(seed: int, trial: int, name: str) -> float:
    """A number from 0, below 1, that looks random and follows from these alone."""
    digest = hashlib.sha256(f"{seed}\0{trial}\0{name}".encode()).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)


def parse_space(given: Mapping[str, Any]) -> Space:
    """The space that texts or lists by option describe; what is wrong raises :class:`ConfigError`, one line each."""
    dimensions, problems = [], []
    for name, values in given.items():
        try:
            dimensions.append(Dimension(name, _values(name, values)))
        except ValueError as error:
            problems.append(f"space: {name} = {shown(values)}: {error}")
    problems += [] if given else ["space: expected at least one option, such as optimizer.learning_rate=log(1e-4,1e-1)"]
    problems += _twins(given)
    if problems:
        raise ConfigError("\n".join(problems))
    return Space(tuple(dimensions))


def split_assignments(texts: Iterable[str]) -> dict[str, str]:
    """``OPTION=VALUES`` as name and text; an option that is named twice is an error."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not name or not values.strip():
            raise ConfigError(f"space '{text}': expected OPTION=VALUES, the values being {FORMS}")
        if name in found:
            raise ConfigError(f"space: {name} is given twice: give all its values at once")
        found[name] = values.strip()
    return found


def applicable(values: Mapping[str, Any], given: Iterable[Given]) -> dict[str, Any]:
    """The values of a trial without options that its optimizer, strategy or other chosen component does not have.

    A space may hold the momentum of one optimizer beside the betas of another: each trial takes its own.
    """
    own = {name: value for name, value in values.items() if not _is_of_chosen(name)}
    base = RunConfig.from_given([*given, *(Given(name, value, name, ABOVE) for name, value in own.items())])
    fitting = {name: value for name, value in values.items() if name not in own and _fits(base, name)}
    return {name: value for name, value in values.items() if name in own or name in fitting}


def _written(number: float) -> str:
    """A bound that reads back as it is."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _path(name: str) -> tuple[str, ...]:
    alias = locate(name)
    if alias is None:
        raise ValueError(unknown_option(name))
    return alias.path


def _is_of_chosen(name: str) -> bool:
    """Whether it is an option of a component that is chosen by name, not the name itself."""
    path = _path(name)
    return len(path) == 2 and BY_NAME[path[0]].kind == "chosen" and path[1] != "name"


def _fits(base: RunConfig, name: str) -> bool:
    section, option = _path(name)
    component = type(getattr(base, section))
    return option in component.model_fields or option in component.other_names


def _values(name: str, given: Any) -> Range | tuple[Any, ...]:
    path = _path(name)
    if isinstance(given, str):
        ranged = _RANGE.fullmatch(given)
        if ranged is not None:
            return _range(ranged["scale"], ranged["bounds"], is_whole=bare(annotation_of(path)) is int)
        given = [part.strip() for part in given.split("|" if "|" in given else ",")]
    if not isinstance(given, Sequence) or not given:
        raise ValueError(f"expected {FORMS}")
    values = tuple(_value(name, value) for value in given)
    if any(value in values[:place] for place, value in enumerate(values)):
        raise ValueError("a value is given twice: give each once")
    return values


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return typed(list(value) if isinstance(value, tuple) else value, name)
    if not value:
        raise ValueError("a value is empty")
    try:
        return from_text(name, value)
    except ValueError as error:
        raise ValueError(f"expected {error}, received '{value}'") from None


def _range(scale: str, bounds: str, *, is_whole: bool) -> Range:
    try:
        low, high = (float(bound) for bound in bounds.split(","))
    except ValueError:
        raise ValueError(f"expected two numbers, as in {scale}(1,10)") from None
    kind: Scale = "log" if scale == "log" else "int" if scale == "int" else "uniform"
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"expected a finite range from low to high, received {low:g} to {high:g}")
    if kind == "log" and low <= 0:
        raise ValueError(f"a logarithmic range begins above 0, received {low:g}")
    is_whole = is_whole or kind == "int"
    if is_whole and not (low.is_integer() and high.is_integer()):
        raise ValueError(f"expected whole numbers, received {low:g} and {high:g}")
    return Range(low, high, kind, is_whole)


def _twins(given: Mapping[str, Any]) -> list[str]:
    """Options that were named twice, in two spellings."""
    seen: dict[tuple[str, ...], str] = {}
    problems = []
    for name in given:
        alias = locate(name)
        path = (name,) if alias is None else alias.path
        path = (*path, "name") if len(path) == 1 and path[0] in BY_NAME else path
        if path in seen:
            problems.append(f"space: {seen[path]} and {name} are the same option: give one of them")
        seen[path] = name
    return problems
