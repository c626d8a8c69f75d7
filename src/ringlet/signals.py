"""Signals that ask a process to leave: one list of them, and one rule for what comes after the first.

SIGINT and SIGTERM ask, and the second of these insists. A terminal that is closed (SIGHUP) asks as well, but never
insists: the shell and the kernel may both tell of it, and some systems send it together with SIGTERM. What was ignored
when the process began stays ignored, as with ``nohup``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORWARDED = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
"""What a process that is asked sends to those it has started."""

Handle = Callable[[signal.Signals, bool], None]
"""Given a signal, and whether it insists."""


@final
class Stopped(KeyboardInterrupt):
    """Any signal that stops at once, as Ctrl-C does: what is cleaned up then is cleaned up now."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self.number = number


@final
class Requests:
    """The requests to leave that have come so far."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.has_hung_up = False
        self._num_counted = 0

    def take(self, number: signal.Signals) -> bool | None:
        """Take note of a signal: False if it is the first request, True if it insists, None if it adds nothing."""
        is_first = self.first is None
        self.first = self.first or number
        if number == signal.SIGHUP:
            self.has_hung_up = True
        else:
            self._num_counted += 1
        if self._num_counted > 1 and number != signal.SIGHUP:
            return True
        return False if is_first else None


def is_ignored(number: signal.Signals) -> bool:
    """Whether the process was told not to listen to this signal."""
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def handled(handle: Handle, numbers: Sequence[signal.Signals] = ASKING) -> Iterator[None]:
    """Within: ``handle`` is called with the first request and with those that insist; in the main thread only.

    Signal handlers belong to the main thread: elsewhere this changes nothing. After a closed terminal SIGHUP stays
    ignored: another one must not disturb what is still to be written.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    requests = Requests()

    def take(number: int, _frame: FrameType | None) -> None:
        insists = requests.take(signal.Signals(number))
        if insists is not None:
            handle(signal.Signals(number), insists)

    previous: dict[signal.Signals, Any] = {}
    try:
        for number in numbers:
            if not is_ignored(number):
                previous[number] = signal.signal(number, take)
        yield
    finally:
        for number, handler in previous.items():
            if number == signal.SIGHUP and requests.has_hung_up:
                signal.signal(number, signal.SIG_IGN)
            elif not is_ignored(number):  # as a block within has left it
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
