"""Progress of countable work on stderr: a live bar on a terminal, a plain line every few seconds otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ringlet.cli.display import is_live

PLAIN_INTERVAL = 5.0
LIVE_INTERVAL = 0.1


def short_rate(count: int, seconds: float) -> str:
    """So many a second, with a decimal where they are few."""
    rate = count / max(seconds, 1e-9)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


class Counter:
    """Shows how many of ``total`` are done; as a context it leaves the terminal as it was."""

    def __init__(
        self, console: Console, label: str, total: int, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._label, self._total, self._unit, self._clock = console, label, total, unit, clock
        self._start = self._last = clock()
        self._live = is_live(console)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[rate]}", style="cyan"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not self._live, refresh_per_second=10)
        self._task = self._bar.add_task(label, total=total, rate="")

    def __enter__(self) -> Self:
        """Begin to show."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the bar and give the cursor back."""
        self._bar.stop()

    def __call__(self, done: int) -> None:
        """So many are done."""
        now = self._clock()
        if now - self._last < (LIVE_INTERVAL if self._live else PLAIN_INTERVAL):
            return
        self._last = now
        rate = f"{short_rate(done, now - self._start)} {self._unit}/s"
        if self._live:
            self._bar.update(self._task, completed=done, rate=rate)
        else:
            self._console.print(
                Text(f"{self._label}: {done:,} of {self._total:,} {self._unit}, {rate}"), soft_wrap=True
            )
