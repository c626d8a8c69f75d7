"""What becomes of a job: who failed first, when the others have to go, and with which code all of it ends.

:func:`supervise` is the launcher's loop: pass on what ranks print, forward signals once, and leave no rank behind.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Protocol

from ringlet import signals
from ringlet.errors import EXIT_FAILED, EXIT_RANK_DIED
from ringlet.launch.messages import MESSAGES, MessageReader
from ringlet.launch.output import Output

FAILED_SECONDS = 2.0
"""How long the others may go on after a rank failed: time to notice it and to finish what they write."""
LEFT_SECONDS = 5.0
"""… after a rank left with a code other than 0."""
ASKED_SECONDS = 60.0
"""… after a rank left because all were asked to: others may still be saving."""
SIGNAL_BASE = 128
_TICK_SECONDS = 0.1
_MAX_CAUSE = 400
_SIGNAL_HINTS = {
    signal.SIGKILL: "Often the system ran out of memory: try a smaller batch or fewer workers.",
    signal.SIGSEGV: "A compiled library crashed: set PYTHONFAULTHANDLER=1 to see where.",
    signal.SIGBUS: "Often a file or shared memory ran out of space.",
}


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    exit_code: int
    failure: str | None = None
    """What is to say about it, beginning with the rank that failed first."""
    cause: str | None = None
    """The same in one line."""
    asked: int | None = None
    """The signal by which the job was asked to end, if it was."""
    is_absence: bool = False
    """Whether nothing could be started because hosts did not answer."""
    is_loss: bool = False
    """Whether contact with the ranks was lost before they said how they ended."""


class Job:
    """Takes note of what all ranks print and report. Tells failures at once, by ``tell`` (default: the output)."""

    def __init__(self, size: int, output: Output, tell: Callable[[str], None] | None = None) -> None:
        self.size = size
        self.asked: int | None = None
        self.killing = False
        self._output = output
        self._tell = output.say if tell is None else tell
        self._readers = [MessageReader() for _ in range(size)]
        self._places = [f"rank {rank} of {size}" for rank in range(size)]
        self._pids = [0] * size
        self._returned: dict[int, int] = {}
        self._failed: set[int] = set()
        self._outcome: Outcome | None = None
        self._secondary: Outcome | None = None
        self._left: tuple[int, int] | None = None
        self._deadline = math.inf
        self._limit = (math.inf, math.inf)

    def take(self, rank: int, stream: int, data: bytes) -> None:
        """``data`` came from a rank."""
        if not 0 <= rank < self.size:
            return
        if stream != MESSAGES:
            self._output.write(rank, stream, data)
            return
        for message in self._readers[rank].feed(data):
            self._hear(rank, message)

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        match message:
            case {"event": "started", "pid": int(pid), "host": str(host)}:
                self._pids[rank] = pid
                self._places[rank] = f"rank {rank} of {self.size} on {host}"
            case {"event": "failed", "text": str(text), "exit_code": int(code), "secondary": bool(secondary)}:
                self._note_failure(rank, text, code, secondary)
            case {"event": "leaving", "exit_code": int(code)}:
                self._note_leaving(rank, code)
            case {"event": "ended", "return_code": int(code), "out_of_memory": bool(out_of_memory)}:
                self.ended(rank, code, out_of_memory=out_of_memory)

    def _note_failure(self, rank: int, text: str, code: int, secondary: bool) -> None:
        self._failed.add(rank)
        failure, essence = f"{self._places[rank]} failed:\n{text}", _essence(text)
        cause = essence if essence.startswith(f"rank {rank} ") else f"rank {rank} failed ({essence})"
        if secondary:
            self._secondary = self._secondary or Outcome(code, failure, cause)
        else:
            self.fail(failure, code, cause)
        self._hurry(FAILED_SECONDS)

    def _note_leaving(self, rank: int, code: int) -> None:
        if code and self._left is None:
            self._left = (rank, code)
            self._hurry(LEFT_SECONDS if self.asked is None else ASKED_SECONDS)

    def ended(self, rank: int, return_code: int, *, out_of_memory: bool = False) -> None:
        """A rank's process ended: with its exit code or, negative, by a signal."""
        if rank in self._returned:
            return
        self._returned[rank] = return_code
        if self.killing or return_code == 0 or rank in self._failed:
            return
        if return_code < 0 and -return_code == self.asked:
            self._note_leaving(rank, SIGNAL_BASE - return_code)
        elif return_code < 0:
            how, hint = _describe_signal(-return_code, out_of_memory)
            place = self._places[rank].replace(f"rank {rank} of", f"rank {rank} (pid {self._pids[rank]}) of")
            self.fail(f"{place} {how}. {hint}".rstrip(), EXIT_RANK_DIED, f"rank {rank} {how}")
            self._hurry(FAILED_SECONDS)
        else:
            self._note_leaving(rank, return_code)

    def stopped(self) -> None:
        """The ranks ended because they were asked to, without saying how."""
        if self.asked is not None and self._left is None:
            self._left = (0, SIGNAL_BASE + self.asked)

    def fail(self, text: str, exit_code: int, cause: str | None = None, *, is_loss: bool = False) -> None:
        """The job cannot succeed any more; the first reason counts and is told at once."""
        if self._outcome is None:
            self._outcome = Outcome(exit_code or EXIT_FAILED, text, cause or _essence(text), is_loss=is_loss)
            self._tell(text)

    def kill_in(self, seconds: float) -> None:
        """All ranks have to go in ``seconds`` at the latest."""
        self._hurry(seconds)

    def limit(self, seconds: float) -> None:
        """The job fails if it takes longer than ``seconds`` from now."""
        self._limit = (monotonic() + seconds, seconds)

    def tick(self) -> None:
        """To be called now and then: time passes."""
        self._output.tick()
        end, seconds = self._limit
        if monotonic() >= end and not self.all_returned:
            late = ", ".join(str(rank) for rank in range(self.size) if rank not in self._returned)
            self.fail(f"the job did not end within {seconds:g} s: rank {late} of {self.size} still ran", EXIT_FAILED)
            self._hurry(0)

    def _hurry(self, seconds: float) -> None:
        self._deadline = min(self._deadline, monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        """Whether every rank has ended, or waits to be ended after its failure, or the time for it is up."""
        return len(self._failed | self._returned.keys()) == self.size or monotonic() >= self._deadline

    @property
    def all_returned(self) -> bool:
        """Whether every rank's end is known."""
        return len(self._returned) == self.size

    def conclude(self) -> Outcome:
        """The outcome, once no process is left; what has not been told is told."""
        outcome = self._outcome
        if outcome is None and self._left is not None:
            outcome = self._describe_leaving(*self._left)
        outcome = outcome or self._secondary
        if outcome is None and self.killing and self.asked is not None:
            outcome = Outcome(SIGNAL_BASE + self.asked)
        if outcome is not None and outcome.failure and outcome is not self._outcome:
            self._tell(outcome.failure)
        return replace(outcome or Outcome(0), asked=self.asked)

    def _describe_leaving(self, rank: int, code: int) -> Outcome:
        """Nothing is to say if all ranks left with one code: then they knew what they did."""
        others = set(range(self.size)) - {rank}
        cause = f"rank {rank} left with exit code {code}"
        if self.asked is not None or all(self._returned.get(other) == code for other in others):
            return Outcome(code, None, cause)
        missed = " while others waited for it" if self.killing or self._failed else ""
        return Outcome(code, f"{self._places[rank]} left with exit code {code}{missed}", cause)


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


def _describe_signal(number: int, out_of_memory: bool) -> tuple[str, str]:
    """How a rank was killed, and what may be behind it."""
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"was killed by signal {number}", ""
    how = f"was killed by signal {number} ({known.name})"
    if out_of_memory:
        return f"{how}: memory ran out", "Try a smaller batch or fewer workers."
    return how, _SIGNAL_HINTS.get(known, "")


def _essence(text: str) -> str:
    """One line of a message: of a traceback the last, else the first."""
    lines = [line for line in text.strip().splitlines() if line.strip()] or [""]
    line = lines[-1 if lines[0].startswith("Traceback") else 0].strip()
    return line if len(line) <= _MAX_CAUSE else f"{line[:_MAX_CAUSE]}…"
