"""The figure that a study waits for: ``accuracy=0.97``, ``dice=90%``."""

from __future__ import annotations

from collections.abc import Iterable

from ringlet.errors import ConfigError
from ringlet.optim.metric_names import resolve


def parse_target(text: str) -> tuple[str, float] | None:
    """``METRIC=VALUE`` as (metric, value); None if the text is empty."""
    if not text:
        return None
    name, equals, number = (part.strip() for part in text.partition("="))
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not name or not equals or not abs(value) < float("inf"):
        raise ConfigError(f"target = '{text}': expected METRIC=VALUE, such as accuracy=0.97 or dice=90%")
    return name, value


def find_metric(name: str, known: Iterable[str]) -> str:
    """The name in the logs that ``name`` means: of validation, if nothing else is said and there is one."""
    names = set(known)
    for wish in (f"val_{name}", name):
        try:
            return resolve(wish, names)
        except ConfigError:
            continue
    raise ConfigError(f"target: no figure '{name}' in these runs, expected one of {', '.join(sorted(names))}")
