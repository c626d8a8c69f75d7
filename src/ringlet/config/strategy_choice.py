"""Which way ranks agree, as a small text: ``sync``, ``average:10``, ``bmuf:10``, ``async``, ``softsync:2``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

from ringlet import plugins
from ringlet.errors import ConfigError

StrategyName = Literal["sync", "average", "bmuf", "async", "softsync", "plugin"]
FORMS = "sync, average:K, bmuf:K[,block_momentum=M,block_rate=R,classical], async or softsync:N"
_MAX_COUNT = 1_000_000


@dataclass(frozen=True)
class StrategyChoice:
    """A strategy and its numbers; see ``docs/strategies.md``."""

    name: StrategyName = "sync"
    count: int = 1
    """K, the steps between two averages, or N of n-softsync."""
    block_momentum: float | None = None
    """Share of the last block's update that is kept; None: 1 - 1 / workers."""
    block_rate: float = 1.0
    nesterov: bool = True
    """Nesterov's form of the block momentum, or the classical one."""
    plugin: str = ""
    """The name of a strategy that an installed package adds."""
    argument: str = ""
    """What stands behind its colon."""

    @classmethod
    def parse(cls, text: str) -> StrategyChoice:
        """The choice that ``text`` names; anything else raises :class:`ConfigError`."""
        head, *details = [part.strip() for part in text.strip().lower().split(",")]
        name, colon, number = head.partition(":")
        if name in ("sync", "async") and not colon and not details:
            return cls("sync" if name == "sync" else "async")
        if name in ("average", "softsync") and not details:
            return cls("average" if name == "average" else "softsync", _count(text, number))
        if name == "bmuf":
            return _with_details(cls("bmuf", _count(text, number)), text, details)
        return _of_plugin(text)


def _of_plugin(text: str) -> StrategyChoice:
    name, _, argument = text.strip().partition(":")
    known = plugins.names("strategies")
    if plugins.find("strategies", name) is not None:
        return StrategyChoice("plugin", plugin=name, argument=argument)
    near = get_close_matches(name.lower(), [*get_args(StrategyName)[:-1], *known], n=1, cutoff=0.6)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise ConfigError(f"strategy = '{text}': expected {', '.join([*known, FORMS])}.{hint}")


def _count(text: str, number: str) -> int:
    count = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 0
    if not 1 <= count <= _MAX_COUNT:
        raise ConfigError(f"strategy = '{text}': expected a number of 1 to {_MAX_COUNT:,} behind the colon: {FORMS}")
    return count


def _with_details(choice: StrategyChoice, text: str, details: list[str]) -> StrategyChoice:
    numbers: dict[str, float] = {}
    nesterov = True
    for detail in details:
        name, _, value = detail.partition("=")
        if detail == "classical":
            nesterov = False
        elif name in ("block_momentum", "block_rate") and name not in numbers:
            numbers[name] = _fraction(text, name, value)
        else:
            raise ConfigError(f"strategy = '{text}': '{detail}' is not understood, expected {FORMS}")
    momentum, rate = numbers.get("block_momentum"), numbers.get("block_rate", 1.0)
    if rate == 0:
        raise ConfigError(f"strategy = '{text}': block_rate = 0 would learn nothing, expected more")
    if momentum is not None and momentum >= 1:
        raise ConfigError(
            f"strategy = '{text}': block_momentum = {momentum:g} would grow for ever, expected less than 1"
        )
    return StrategyChoice(choice.name, choice.count, momentum, rate, nesterov)


def _fraction(text: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f"strategy = '{text}': {name} = '{value}', expected a number of at least 0")
    return number
