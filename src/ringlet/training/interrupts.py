"""Stopping a run from outside: the first signal asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Control:
    """A run's switch: callbacks and signals ask for a stop, the loop looks after every step."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.interrupted = False

    def stop(self, reason: str) -> None:
        """End training after the current epoch."""
        self.reason = self.reason or reason

    def interrupt(self, reason: str) -> None:
        """End training after the current step."""
        self.reason = reason
        self.interrupted = True


@contextmanager
def interruptible(control: Control) -> Iterator[None]:
    """Within: SIGINT or SIGTERM lets the current step finish; a second one raises KeyboardInterrupt at once.

    Signal handlers belong to the main thread; elsewhere this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if control.interrupted:
            raise KeyboardInterrupt
        control.interrupt(f"{signal.Signals(number).name} received")

    previous: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
