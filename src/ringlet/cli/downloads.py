"""Progress of a download on stderr: live bars on a terminal, a plain line per file and every few seconds otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.text import Text

from ringlet.cli.display import clean, is_live

PLAIN_INTERVAL = 5.0
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
