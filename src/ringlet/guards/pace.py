"""How long may a rank take until it counts as stalled? Learnt from how long it took so far."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import final

from ringlet.errors import ConfigError

LEAST_SECONDS = 30.0
MANY_TIMES = 10.0
"""The limit is so many times the usual time between two signs of progress, and never below the least."""
_REMEMBERED = 31


@final
class Pace:
    """Time without progress, and its limit: the given one, or one that follows the median of what was usual."""

    def __init__(self, limit_seconds: float | None = None) -> None:
        if limit_seconds is not None and not limit_seconds > 0:
            raise ConfigError(f"a limit of {limit_seconds} s without progress: expected more than 0")
        self._given = limit_seconds
        self._intervals: deque[float] = deque(maxlen=_REMEMBERED)
        self._seen = 0
        self.longest_gap = math.inf
        """So much of the time between two notes counts: a job that was suspended and goes on has not stalled."""
        self.idle = 0.0
        """Seconds since the last sign of progress."""

    def note(self, count: int, elapsed: float) -> None:
        """``elapsed`` more seconds have gone by, and there were ``count`` signs of progress in all."""
        self.idle += min(elapsed, self.longest_gap)
        if count != self._seen:
            self._intervals.append(self.idle / (count - self._seen))
            self._seen, self.idle = count, 0.0

    @property
    def limit(self) -> float:
        """Seconds that may go by without progress."""
        if self._given is not None:
            return self._given
        return max(LEAST_SECONDS, MANY_TIMES * median(self._intervals)) if self._intervals else LEAST_SECONDS
