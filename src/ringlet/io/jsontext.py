"""JSON from strangers: parsed only after cheap bounds on its size, depth and number of values.

Raises ``ValueError`` with a readable message; callers turn it into their own error.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import accumulate
from typing import Any

MAX_CHARACTERS = 8 << 20
MAX_VALUES = 400_000
MAX_DEPTH = 32
MAX_NUMBER = 40
_BRACKETS = re.compile(r"[\[\]{}]")


def parse(text: str) -> Any:
    """The value of ``text``; refuses duplicate keys, NaN, infinities, huge numbers, deep nesting and huge texts."""
    _check_bounds(text)
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
        )
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None


def canonical(value: Any) -> str:
    """One text per value: sorted keys, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _check_bounds(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text):,} characters, at most {MAX_CHARACTERS:,} are accepted")
    limits = {",[{": MAX_VALUES, "]}": MAX_VALUES, '"': 4 * MAX_VALUES}
    if any(sum(map(text.count, marks)) > limit for marks, limit in limits.items()):
        raise ValueError(f"more than {MAX_VALUES:,} values")
    if _depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _depth(text: str) -> int:
    """The deepest nesting outside strings; a damaged text may give any number, the parser then refuses it."""
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(outside))
    return max(accumulate(steps), default=0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {twice[:60]!a} appears twice")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text) if len(text) <= MAX_NUMBER else math.inf
    if not math.isfinite(value):
        raise ValueError(f"number {text[:40]} is out of range")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER:
        raise ValueError(f"number {text[:20]}… is out of range")
    return int(text)
