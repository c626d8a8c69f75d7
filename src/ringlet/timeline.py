"""Where the time of a rank goes: named phases, added up for every epoch, or one by one for ``--timeline``.

Code that computes only says what it begins (``timeline.mark("forward")``); that ends the phase before. The default
:data:`NO_TIMELINE` does nothing, so no one needs to ask whether a timeline is wanted.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Protocol, final

PHASES = ("data", "forward", "backward", "metrics", "wait", "reduce", "exchange", "update", "validation", "other")
"""All names that are marked, in the order of a step.

data: waiting for the next batch; metrics: of the batch; wait: for other ranks; reduce: adding up gradients of
this machine; exchange: between machines, or agreeing on norms; update: the optimizer; other: callbacks, files.
"""


class Timeline(Protocol):
    """Something that takes note of phases."""

    def mark(self, phase: str) -> None:
        """``phase`` begins now; the phase before ends."""


@final
class NoTimeline:
    """Takes no note."""

    def mark(self, phase: str) -> None:
        """Nothing happens."""


NO_TIMELINE = NoTimeline()


@final
class RecordedTimeline:
    """Keeps the beginning of every phase, in nanoseconds of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.phases: list[int] = []
        """Places in :data:`PHASES`."""
        self.starts: list[int] = []

    def mark(self, phase: str) -> None:
        """Note it."""
        self.phases.append(_NUMBERS[phase])
        self.starts.append(monotonic_ns())


@final
class PhaseTotals:
    """Adds up how long each phase took, and hands every mark on to another timeline."""

    def __init__(self, timeline: Timeline = NO_TIMELINE) -> None:
        self._next = timeline
        self._totals = [0] * len(PHASES)
        self._phase, self._start = _NUMBERS["other"], monotonic_ns()

    def mark(self, phase: str) -> None:
        """End the phase before."""
        now = monotonic_ns()
        self._totals[self._phase] += now - self._start
        self._phase, self._start = _NUMBERS[phase], now
        self._next.mark(phase)

    def take(self) -> list[float]:
        """Seconds of every phase in the order of :data:`PHASES` since the last call; counting starts again."""
        self.mark("other")
        totals, self._totals = self._totals, [0] * len(PHASES)
        return [nanoseconds / 1e9 for nanoseconds in totals]


_NUMBERS = {name: number for number, name in enumerate(PHASES)}
