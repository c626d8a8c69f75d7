"""Progress of long commands on stderr: a bar on a terminal, one plain line every few seconds otherwise.

That of training is :mod:`ringlet.training.display`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ringlet.cli.display import clean
from ringlet.terminal import is_live
from ringlet.training.display import LIVE_INTERVAL, PLAIN_INTERVAL


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


NAME_LENGTH = 60


class DownloadDisplay:
    """Shows ``(file, bytes done, bytes in all)``; as a context it leaves the terminal as it was."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock, self._last_line = console, clock, clock()
        self._live = is_live(console)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Progress(*columns, console=console, disable=not self._live)
        self._tasks: dict[str, TaskID] = {}
        self.was_used = False

    def __enter__(self) -> Self:
        """Begin to show."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the bars and give the cursor back."""
        self._bars.stop()

    def __call__(self, file: str, done: int, total: int) -> None:
        """Some bytes of ``file`` have arrived."""
        self.was_used = True
        if self._live:
            if file not in self._tasks:
                self._tasks[file] = self._bars.add_task(clean(file, NAME_LENGTH), total=total)
            self._bars.update(self._tasks[file], completed=done, total=total)
        elif done == total or self._clock() - self._last_line >= PLAIN_INTERVAL:
            self._last_line = self._clock()
            line = f"{clean(file, NAME_LENGTH)}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB"
            self._console.print(Text(line), soft_wrap=True)
