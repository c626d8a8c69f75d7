"""The launcher's loop: pass on what ranks print, forward signals once, and leave no rank behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

from ringlet.launch.job import Job, Outcome

_TICK_SECONDS = 0.1
_FORWARDED = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
"""Signals to the launcher and what ranks get for them: a terminal that is closed asks them to leave."""


class Ranks(Protocol):
    """Ranks that have been started, by whatever means."""

    @property
    def running(self) -> bool:
        """Whether any process is left."""

    def pump(self, job: Job, seconds: float) -> None:
        """Tell ``job`` what happens within ``seconds``."""

    def forward(self, number: int) -> None:
        """Send a signal to every rank."""

    def kill(self) -> None:
        """End all ranks at once; may be called again."""

    def close(self) -> None:
        """End what still runs and let go of everything."""


def supervise(ranks: Ranks, job: Job, caught: list[int]) -> Outcome:
    """Run the job to its end; ``caught`` has signals to the launcher. However this is left, no rank is left behind."""
    try:
        while ranks.running:
            ranks.pump(job, _TICK_SECONDS)
            while caught:
                _ask(ranks, job, caught.pop(0))
            job.tick()
            if job.is_over:
                job.killing = job.killing or not job.all_returned
                ranks.kill()
    finally:
        ranks.close()
    return job.conclude()


def _ask(ranks: Ranks, job: Job, number: int) -> None:
    """The first signal is forwarded, so that ranks can save and leave; the second ends them."""
    if job.asked is None:
        job.asked = number
        ranks.forward(number)
    else:
        job.kill_in(0)


@contextlib.contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Signals that arrive are put into a list, in the main thread; in others nothing can be caught."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(_FORWARDED[signal.Signals(number)])

    previous: dict[int, Any] = {}
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        for caught_number, handler in previous.items():
            signal.signal(caught_number, signal.SIG_DFL if handler is None else handler)
