"""Stopping a run from outside: the first signal asks, the second insists."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ringlet import signals
from ringlet.comm.contract import Communicator


class Wish(NamedTuple):
    """What somebody wants of a run at one moment."""

    reason: str | None = None
    interrupted: bool = False
    """After the current step, rather than after the epoch."""


class Control:
    """A run's switch: callbacks and signals ask for a stop, the loop looks after every step.

    A signal may come between any two instructions, so code that acts on a wish looks once (:attr:`wish`) and acts on
    what it saw: a second look may tell something else.
    """

    def __init__(self) -> None:
        self._stop: str | None = None
        self._interruption: str | None = None

    @property
    def wish(self) -> Wish:
        """What is wanted now."""
        interruption = self._interruption
        return Wish(self._stop, False) if interruption is None else Wish(interruption, True)

    @property
    def interrupted(self) -> bool:
        """Whether training is to end after the current step."""
        return self.wish.interrupted

    def stop(self, reason: str) -> None:
        """End training after the current epoch."""
        self._stop = self._stop or reason

    def interrupt(self, reason: str) -> None:
        """End training after the current step."""
        self._interruption = reason


class Stop(NamedTuple):
    """Why training ends before its last epoch, as all ranks agreed."""

    reason: str
    interrupted: bool
    """In the middle of an epoch, by a signal."""


def interruption(wish: Wish) -> Stop:
    """The stop of a rank that was interrupted, or that has heard of it."""
    return Stop(wish.reason if wish.interrupted and wish.reason else "another worker was interrupted", True)


def agree_on_stopping(comm: Communicator, control: Control) -> Stop | None:
    """What all ranks do about the wishes of each: an interruption comes first, then the lowest rank's reason.

    Every rank must call. A signal may change ``control`` at any moment, on one rank only: so ranks act on what was
    agreed on, never on their own control alone.
    """
    own = control.wish
    told = (b"!" if own.interrupted else b".") + (own.reason or "").encode()
    wishes = [(wish[:1] == b"!", wish[1:].decode()) for wish in comm.allgather_bytes(told)]
    if any(interrupted for interrupted, _ in wishes):
        return interruption(own)
    reason = next((reason for _, reason in wishes if reason), None)
    return None if reason is None else Stop(reason, False)


@contextmanager
def interruptible(control: Control) -> Iterator[None]:
    """Within: a signal that asks to leave lets the current step finish; one that insists raises KeyboardInterrupt.

    See :mod:`ringlet.signals`. Signal handlers belong to the main thread; elsewhere this changes nothing.
    """

    def handle(number: signal.Signals, insists: bool) -> None:
        if insists:
            raise KeyboardInterrupt
        control.interrupt(f"{number.name} received")

    with signals.handled(handle):
        yield
