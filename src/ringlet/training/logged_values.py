"""Values of an event log as its readers may use them: a log is a file, and nothing in it is what it says it is.

Limits are chosen so that whatever readers compute of values that passed (sums over ranks and epochs, differences,
rates) stays a finite number, which JSON can hold.
"""

from __future__ import annotations

import math
from typing import Any

MAX_NUMBER = 1e100
"""Far above any figure of a run; ten to the two hundredth of them still have a finite sum."""
MAX_COUNT = 1 << 53
"""What a browser's numbers hold exactly."""
MAX_TIME = 1e12
"""Seconds since 1970: thirty thousand years."""


def number(value: Any) -> float | None:
    """A number of sensible size; None for anything else, such as NaN, which logs hold as text."""
    if type(value) is int and abs(value) <= MAX_NUMBER:
        return float(value)
    if type(value) is float and math.isfinite(value) and abs(value) <= MAX_NUMBER:
        return value
    return None


def whole(value: Any) -> int | None:
    """A number of things; None for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < MAX_COUNT else None


def moment(value: Any) -> float | None:
    """A time in seconds since 1970; None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found <= MAX_TIME else None
