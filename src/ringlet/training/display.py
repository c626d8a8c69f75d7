"""What a run shows of itself: a live bar on a terminal or in a notebook, plain lines in a file or pipe.

A display is a callback over the events of a run; :func:`create_display` chooses the one that suits a console,
:func:`display_for` the one that ``Trainer.fit(verbose=…)`` asks for. All of them print a line for every epoch.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ringlet.errors import ConfigError
from ringlet.terminal import errors_console, is_live
from ringlet.training.events import (
    EpochFinished,
    EpochResumed,
    EpochStarted,
    Evaluated,
    Event,
    StalenessMeasured,
    StepFinished,
    TrainingFinished,
    TrainingStopped,
    ValidationStarted,
)
from ringlet.training.metric_text import joined, metric_parts, short_metrics, time_left

PLAIN_INTERVAL = 5.0
LIVE_INTERVAL = 0.1
BAR_WIDTH, LEAST_BAR = 24, 8
Clock = Callable[[], float]


def create_display(console: Console) -> Display:
    """The display that suits the console."""
    return LiveDisplay(console) if is_live(console) else PlainDisplay(console)


def display_for(verbose: bool | int | str) -> Display | None:
    """What :meth:`Trainer.fit` shows: with "auto" a bar where one can be redrawn, else nothing.

    True or 1 is a bar, or lines where there can be none; 2 is one line per epoch; False or 0 is nothing.
    """
    from ringlet.training.notebook import NotebookDisplay, in_notebook

    if verbose not in ("auto", False, True, 2):
        raise ConfigError(f'verbose = {verbose!r}: expected "auto", True (a bar), 2 (lines) or False (nothing)')
    console = errors_console()
    if verbose is False or verbose == 0:
        return None
    if verbose == 2:
        return PlainDisplay(console, interval=float("inf"))
    if in_notebook():
        return NotebookDisplay()
    return create_display(console) if verbose != "auto" or is_live(console) else None


def epoch_label(epoch: int, num_epochs: int) -> str:
    """``Epoch  3/10``."""
    return f"Epoch {epoch:>{len(str(num_epochs))}}/{num_epochs}"


@dataclass
class Position:
    """How far the running epoch has come, and how fast."""

    clock: Clock
    label: str = ""
    num_samples: int = 0
    done: int = 0
    """Samples of this epoch."""
    epochs_left: int = 0
    """After this one."""
    _start: float = 0.0
    _trained: int = 0
    _epoch_seconds: float | None = None
    """Of the last whole epoch, validation included."""

    def begin(self, event: EpochStarted | EpochResumed) -> None:
        """An epoch begins, or what is left of one."""
        self.label = epoch_label(event.epoch, event.num_epochs)
        self.num_samples, self.epochs_left = event.num_samples, event.num_epochs - event.epoch
        self.done = event.num_done if isinstance(event, EpochResumed) else 0
        self._start, self._trained = self.clock(), 0

    def step(self, num_samples: int) -> None:
        """Some samples more."""
        self.done += num_samples
        self._trained += num_samples

    def finish(self) -> None:
        """The epoch is over."""
        if self._trained and self._trained == self.done:
            self._epoch_seconds = self.clock() - self._start

    @property
    def rate(self) -> float:
        """Samples per second since the epoch began."""
        return self._trained / max(self.clock() - self._start, 1e-9)

    @property
    def seconds_left(self) -> float:
        """Of the whole run."""
        rate = max(self.rate, 1e-9)
        whole = self.num_samples / rate if self._epoch_seconds is None else self._epoch_seconds
        return max(self.num_samples - self.done, 0) / rate + self.epochs_left * whole


class Display(ABC):
    """Shows events; ``close`` leaves the terminal as it was."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._position = Position(clock)
        self._staleness: StalenessMeasured | None = None
        self._last_update = clock()

    @final
    def __call__(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, EpochStarted | EpochResumed):
            self._position.begin(event)
            self._show("")
        elif isinstance(event, StepFinished):
            self._position.step(event.num_samples)
            if self._clock() - self._last_update >= self._interval:
                self._show_step(event)
        elif isinstance(event, ValidationStarted):
            self._show("validating …")
        elif isinstance(event, StalenessMeasured):
            self._staleness = event
        elif isinstance(event, EpochFinished):
            self._position.finish()
            self._line(finished_parts(event, self._staleness))
            for message in event.messages:
                self._line([f"{epoch_label(event.epoch, event.num_epochs)}: {message}"], style="yellow")
        elif isinstance(event, Evaluated) and event.moment == "before":
            self._line([f"Before training: {short_metrics(event.figures, 'test_')}"])
        elif isinstance(event, TrainingStopped):
            self._line([f"Stopped in epoch {event.epoch} (update {event.step}): {event.reason}"], style="yellow")
            self.close()
        elif isinstance(event, TrainingFinished):
            for message in event.messages:
                self._line([message], style="yellow")
            self.close()

    @final
    def _show_step(self, event: StepFinished) -> None:
        self._last_update = self._clock()
        parts = [f"{self._position.rate:,.0f} samples/s", *metric_parts(event.running)]
        self._show(*parts, time_left(self._position.seconds_left))

    @property
    @abstractmethod
    def _interval(self) -> float:
        """Seconds between two looks at a running epoch."""

    @abstractmethod
    def _show(self, *parts: str) -> None:
        """The running epoch."""

    @abstractmethod
    def _line(self, parts: list[str], style: str = "") -> None:
        """What stays."""

    @abstractmethod
    def close(self) -> None:
        """Stop showing."""


@final
class PlainDisplay(Display):
    """A line for every epoch, and now and then within long ones."""

    def __init__(self, console: Console, interval: float = PLAIN_INTERVAL, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._console, self._seconds = console, interval

    @property
    def _interval(self) -> float:
        return self._seconds

    def _show(self, *parts: str) -> None:
        if len(parts) > 1:
            position = self._position
            self._line([f"{position.label}: {position.done}/{position.num_samples} samples", *parts])

    def _line(self, parts: list[str], style: str = "") -> None:  # noqa: ARG002  plain
        self._last_update = self._clock()
        self._console.print(Text(joined(parts, None)), soft_wrap=True)

    def close(self) -> None:
        """Nothing to restore."""


@final
class LiveDisplay(Display):
    """One bar for the running epoch; a finished epoch leaves its line above the bar."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._parts: tuple[str, ...] = ()
        self._live: Live | None = None

    @property
    def _interval(self) -> float:
        return LIVE_INTERVAL

    def _show(self, *parts: str) -> None:
        self._parts = parts
        if self._live is None:
            self._live = Live(get_renderable=self._bar, console=self._console, transient=True, refresh_per_second=10)
            self._live.start()

    def _bar(self) -> Table:
        """Label, bar, counts and as many of the parts as fit into one line."""
        position = self._position
        count = f"{position.done}/{position.num_samples}"
        room = self._console.width - len(position.label) - len(count) - LEAST_BAR - 4
        text = ", ".join(fitting(self._parts, room))
        width = max(min(BAR_WIDTH, room + LEAST_BAR - len(text)), 1)
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(position.num_samples, 1), completed=position.done, width=width)
        row.add_row(Text(position.label), bar, Text(count), Text(text, style="cyan", no_wrap=True))
        return row

    def _line(self, parts: list[str], style: str = "") -> None:
        self._console.print(Text(joined(parts, self._console.width), style=style), soft_wrap=len(parts) > 1)

    def close(self) -> None:
        """Remove the bar and give the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def fitting(parts: tuple[str, ...], room: int) -> list[str]:
    """The parts that fit beside each other: the last one, the time left, always; the speed gives way first."""
    kept = list(parts)
    while len(kept) > 1 and len(", ".join(kept)) > room:
        del kept[0 if len(kept) == len(parts) else -2]
    return kept


def finished_parts(event: EpochFinished, staleness: StalenessMeasured | None) -> list[str]:
    """The line of a finished epoch."""
    label = epoch_label(event.epoch, event.num_epochs)
    parts = [f"{label}: {event.num_samples} samples in {event.seconds:.2f} s"]
    parts += [f"{event.samples_per_second:,.0f} samples/s", *metric_parts(event.figures)]
    return parts if staleness is None else [*parts, f"staleness {staleness.mean:.2f} (at most {staleness.max})"]
