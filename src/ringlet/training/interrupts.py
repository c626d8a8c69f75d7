"""Stopping a run from outside: the first signal asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from ringlet.comm.contract import Communicator


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


class Stop(NamedTuple):
    """Why training ends before its last epoch, as all ranks agreed."""

    reason: str
    interrupted: bool
    """In the middle of an epoch, by a signal."""


def interruption(control: Control) -> Stop:
    """The stop of a rank that was interrupted, or that has heard of it."""
    return Stop(control.reason if control.interrupted and control.reason else "another worker was interrupted", True)


def agree_on_stopping(comm: Communicator, control: Control) -> Stop | None:
    """What all ranks do about the wishes of each: an interruption comes first, then the lowest rank's reason.

    Every rank must call. A signal may change ``control`` at any moment, on one rank only: so ranks act on what was
    agreed on, never on their own control alone.
    """
    own = (b"!" if control.interrupted else b".") + (control.reason or "").encode()
    wishes = [(wish[:1] == b"!", wish[1:].decode()) for wish in comm.allgather_bytes(own)]
    if any(interrupted for interrupted, _ in wishes):
        return interruption(control) if own[:1] == b"!" else Stop("another worker was interrupted", True)
    reason = next((reason for _, reason in wishes if reason), None)
    return None if reason is None else Stop(reason, False)


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
