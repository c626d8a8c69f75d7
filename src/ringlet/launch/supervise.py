"""The launcher's loop: pass on what ranks print, forward signals once, and leave no rank behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from ringlet import signals
from ringlet.launch.job import Job, Outcome

_TICK_SECONDS = 0.1


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
    """What ranks are to get for the signals that arrive, in a list: the request to leave, then those that insist."""
    caught: list[int] = []
    with signals.handled(lambda number, _insists: caught.append(signals.FORWARDED[number])):
        yield caught
