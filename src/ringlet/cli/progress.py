"""Progress of a run on stderr: a live bar on a terminal, one plain line every few seconds otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

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

from ringlet.cli.display import clean, is_live, short_metrics
from ringlet.training.events import (
    EpochFinished,
    EpochStarted,
    Evaluated,
    Event,
    StalenessMeasured,
    StepFinished,
    TrainingFinished,
    TrainingStopped,
    ValidationStarted,
)

PLAIN_INTERVAL = 5.0
EPOCH_INTERVAL = 2.0
LIVE_INTERVAL = 0.1
BAR_WIDTH = 24


class Display(Protocol):
    """Shows events; ``close`` leaves the terminal as it was."""

    def __call__(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Stop showing."""


def create_display(console: Console) -> Display:
    """The display that suits the console."""
    return LiveDisplay(console) if is_live(console) else PlainDisplay(console)


def epoch_label(epoch: int, num_epochs: int) -> str:
    """``Epoch  3/10``."""
    return f"Epoch {epoch:>{len(str(num_epochs))}}/{num_epochs}"


class PlainDisplay:
    """A line per finished epoch (at most one in two seconds, but the first and last always) and within long epochs."""

    def __init__(
        self, console: Console, interval: float = PLAIN_INTERVAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._interval, self._clock = console, interval, clock
        self._last_line = self._last_epoch = self._epoch_start = clock()
        self._epoch: EpochStarted | None = None
        self._staleness: StalenessMeasured | None = None
        self._trained = 0

    def __call__(self, event: Event) -> None:
        """Print a line if it is due."""
        now = self._clock()
        if isinstance(event, EpochStarted):
            self._epoch, self._epoch_start, self._trained = event, now, 0
        elif isinstance(event, StepFinished):
            self._trained += event.num_samples
            if now - self._last_line >= self._interval and self._epoch is not None:
                self._within_epoch(event, self._epoch, now)
        elif isinstance(event, EpochFinished):
            edge = event.epoch in (1, event.num_epochs)
            if edge or now - self._last_epoch >= EPOCH_INTERVAL:
                self._last_epoch = now
                self._print(_finished_line(event, self._staleness), now)
            for message in event.messages:
                self._print(f"{epoch_label(event.epoch, event.num_epochs)}: {message}", now)
        elif isinstance(event, StalenessMeasured):
            self._staleness = event
        elif isinstance(event, Evaluated) and event.moment == "before":
            self._print(_before_line(event), now)
        elif isinstance(event, TrainingStopped):
            self._print(f"Stopped in epoch {event.epoch} (update {event.step}): {event.reason}", now)

    def close(self) -> None:
        """Nothing to restore."""

    def _within_epoch(self, event: StepFinished, epoch: EpochStarted, now: float) -> None:
        rate = self._trained / max(now - self._epoch_start, 1e-9)
        label = epoch_label(event.epoch, epoch.num_epochs)
        done = f"{self._trained}/{epoch.num_samples} samples"
        self._print(f"{label}: {done}, {rate:,.0f} samples/s, {short_metrics(event.running)}", now)

    def _print(self, line: str, now: float) -> None:
        self._last_line = now
        self._console.print(Text(line), soft_wrap=True)


class LiveDisplay:
    """One bar for the running epoch; a finished epoch leaves its line above the bar."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[metrics]}", style="cyan"),
            console=console,
            transient=True,
            refresh_per_second=10,
        )
        self._task: TaskID | None = None
        self._staleness: StalenessMeasured | None = None
        self._trained, self._start, self._last_update = 0, clock(), 0.0

    def __call__(self, event: Event) -> None:
        """Update the bar, or print the line of a finished epoch."""
        if isinstance(event, EpochStarted):
            self._begin(event)
        elif isinstance(event, StepFinished):
            self._advance(event)
        elif isinstance(event, ValidationStarted) and self._task is not None:
            self._progress.update(self._task, metrics="validating …", completed=self._trained)
        elif isinstance(event, EpochFinished):
            self._console.print(Text(_finished_line(event, self._staleness)), soft_wrap=True)
            for message in event.messages:
                self._console.print(Text(f"  {message}", style="yellow"), soft_wrap=True)
        elif isinstance(event, StalenessMeasured):
            self._staleness = event
        elif isinstance(event, Evaluated) and event.moment == "before":
            self._console.print(Text(_before_line(event)), soft_wrap=True)
        elif isinstance(event, TrainingStopped):
            self._console.print(Text(f"Stopped in epoch {event.epoch}: {event.reason}", style="yellow"), soft_wrap=True)
            self.close()
        elif isinstance(event, TrainingFinished):
            self.close()

    def close(self) -> None:
        """Remove the bar and give the cursor back."""
        self._progress.stop()

    def _begin(self, event: EpochStarted) -> None:
        self._trained, self._start = 0, self._clock()
        label = epoch_label(event.epoch, event.num_epochs)
        if self._task is None:
            self._task = self._progress.add_task(label, total=event.num_samples, metrics="")
            self._progress.start()
        self._progress.reset(self._task, total=event.num_samples, description=label, metrics="")

    def _advance(self, event: StepFinished) -> None:
        self._trained += event.num_samples
        now = self._clock()
        if now - self._last_update < LIVE_INTERVAL or self._task is None:
            return
        self._last_update = now
        rate = self._trained / max(now - self._start, 1e-9)
        text = f"{rate:,.0f} samples/s, {short_metrics(event.running)}"
        self._progress.update(self._task, completed=self._trained, metrics=text)


def _before_line(event: Evaluated) -> str:
    return f"Before training: {short_metrics(event.figures, 'test_')}"


def _finished_line(event: EpochFinished, staleness: StalenessMeasured | None) -> str:
    label = epoch_label(event.epoch, event.num_epochs)
    done = f"{event.num_samples} samples in {event.seconds:.2f} s"
    stale = f", staleness {staleness.mean:.2f} (at most {staleness.max})" if staleness is not None else ""
    return f"{label}: {done}, {event.samples_per_second:,.0f} samples/s, {short_metrics(event.figures)}{stale}"


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
