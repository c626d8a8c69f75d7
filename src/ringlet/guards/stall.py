"""A rank that makes no progress is found, named and ended, together with the job, instead of being waited for.

The code that works calls :meth:`StallDetector.progress`, at every step and now and then during anything long. A thread
of every rank looks at the count: a rank can hang while its threads live, so a heartbeat alone proves nothing. What each
rank does lies on a :class:`~ringlet.guards.board.Board` of its machine, also that of ranks that cannot answer.

This is the one guard that writes to the error output and ends the process: who would catch an exception in a process
that hangs?
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from statistics import median
from time import monotonic, sleep
from types import TracebackType
from typing import Self, final

from ringlet.comm.contract import Communicator
from ringlet.errors import EXIT_RANK_DIED, ConfigError
from ringlet.forks import Owner
from ringlet.guards.board import Board, Status, all_stacks, whereabouts
from ringlet.launch import messages

LOOK_SECONDS = 0.5
"""How often the thread looks, at most."""
MOST_LOOKS = 4
"""How many looks a rank that found a stall waits for the others to find it too."""
SILENT_SECONDS = 2.0
"""A rank whose thread has not been heard of for so long does not respond."""
OTHER_MACHINE_SECONDS = 2.0
"""So much longer waits a machine whose ranks all wait for another machine: that one knows more."""
STACK_SECONDS = 1.0
"""How long other ranks have for showing their stacks."""
SIGNAL_SECONDS = 0.2
"""… once they have got the signal for it."""
LAUNCHER_SECONDS = 4.0
"""How long the launcher has for ending this process once it has been told; it needs about half of it."""
LAST_SECONDS = 8.0
"""After so long the process ends whatever hangs, flushing its streams included."""
LEAST_SECONDS = 30.0
MANY_TIMES = 10.0
"""The limit is so many times the usual time between two signs of progress, and never below the least."""
_NUM_INTERVALS = 31


@final
class StallDetector:
    """Watches this rank within a ``with`` block; every rank of the job must make one and enter it.

    The limit is ``limit_seconds``; by default ten times the median time between two signs of progress, and at least
    30 s; 0 turns it off. Without a limit given, a process alone without a launcher is not watched: no one waits for
    it, and someone may be debugging in it.
    Ranks of a machine count as stalled only when all of them do: who works alone may let the others wait.
    """

    def __init__(self, comm: Communicator, limit_seconds: float | None = None) -> None:
        self._comm = comm
        self._owner = Owner()
        alone = comm.size == 1 and limit_seconds is None and not messages.is_rank()
        self._pace = Pace(limit_seconds or None)
        self._board = Board(comm)
        self._active = not alone and limit_seconds != 0
        self._count = 0
        self._phase = ""
        self._step = self._board.step
        self._num_stalled = 0
        self._has_shown = self._has_signal = False
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched = 0
        self._tick = min(LOOK_SECONDS, self._pace.limit / 8)
        self._pace.longest_gap = 4 * self._tick

    def progress(self, at: int | str) -> None:
        """This rank has come to a step (a number) or to a phase outside of steps (a name). Cheap: call it often."""
        self._count += 1
        if isinstance(at, str):
            self._phase = at
        else:
            self._step[0] = at
            self._phase = ""

    def __enter__(self) -> Self:
        if self._active:
            self._watched = threading.get_ident()
            self._has_signal = _show_stacks_on_signal()
            now = monotonic()
            self._board.enter(now, now + self._pace.limit, self._has_signal)
            self._thread = threading.Thread(target=self._watch, name="ringlet stall detector", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owner.is_here:  # a copy of the rank leaves; the rank does not
            return
        if self._thread is not None:
            self._finished.set()
            self._thread.join()
            self._thread = None
            self._board.leave()
        if self._has_signal:
            faulthandler.unregister(signal.SIGUSR1)
            self._has_signal = False

    # -- the thread ---------------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        before = monotonic()
        while not self._finished.wait(self._tick):
            now = monotonic()
            self._look(now, now - before)
            before = now

    def _look(self, now: float, elapsed: float) -> None:
        pace = self._pace
        pace.note(self._count, elapsed)
        waiting, place = whereabouts(self._watched) if pace.idle else (False, "")
        self._board.post(now, now + self._pace.limit - pace.idle, waiting, place)
        if self._board.is_reported:
            self._show_stacks()
        elif self._is_over(now):
            self._num_stalled += 1
            self._board.mark_stalled(True)
            self._speak_if_first(now)
        else:
            self._num_stalled = 0
            self._board.mark_stalled(False)

    def _speak_if_first(self, now: float) -> None:
        """The ranks find out at about the same time; when all know, or after a few looks, one of them speaks."""
        agreed = self._board.all_stalled(now, SILENT_SECONDS) or self._num_stalled > MOST_LOOKS
        if self._num_stalled > 1 and agreed and self._board.is_speaker(now, SILENT_SECONDS):
            self._board.mark_reporting()
            self._end_job()

    def _is_over(self, now: float) -> bool:
        """Whether the last rank of this machine has used up its time."""
        if self._pace.idle < self._pace.limit:
            return False
        grace = OTHER_MACHINE_SECONDS if len(self._comm.local_sizes) > 1 and self._board.all_waiting else 0.0
        return now > self._board.deadline + grace

    def _show_stacks(self) -> None:
        if not self._has_shown:
            self._has_shown = True
            self._board.post_stacks(all_stacks())

    # -- the report ---------------------------------------------------------------------------------------------------
    def _report(self) -> str:
        """Headline, who is behind, stacks of all ranks of the machine that show them."""
        self._show_stacks()
        statuses = self._board.statuses(monotonic())
        own = statuses[self._comm.local_rank]
        others = [status for status in statuses if status is not own]
        words = filter(None, (f"in step {own.step}", self._phase, own.place))
        headline = (
            f"rank {own.rank} of {self._comm.size} on {os.uname().nodename} has made no progress for "
            f"{self._pace.idle:.3g} s (limit {self._pace.limit:.3g} s) {', '.join(words)}"
        )
        stacks = self._collect_stacks(statuses)
        return "\n".join([f"{headline}; {_blame(own, others, len(self._comm.local_sizes) > 1)}", *stacks])

    def _collect_stacks(self, statuses: list[Status]) -> Iterator[str]:
        """Stacks of each rank, or why there are none. Who does not answer is asked by a signal, which always works."""
        able = [place for place, status in enumerate(statuses) if _can_answer(status)]
        self._wait_for_stacks(able)
        for place, status in enumerate(statuses):
            stacks = self._board.stacks(place)
            if stacks is None and place in able and self._board.answers_signal(place):
                with suppress(OSError):
                    os.kill(status.process, signal.SIGUSR1)
                    yield f"--- stacks of rank {status.rank}: on its own error output, by a signal"
                    sleep(SIGNAL_SECONDS)
            elif stacks is not None:
                yield f"--- stacks of rank {status.rank} (process {status.process}), innermost call first\n{stacks}"

    def _wait_for_stacks(self, places: list[int]) -> None:
        end = monotonic() + STACK_SECONDS
        while monotonic() < end and any(self._board.stacks(place) is None for place in places):
            sleep(self._tick / 4)

    # -- the end ------------------------------------------------------------------------------------------------------
    def _end_job(self) -> None:
        """Whatever fails on the way, this process ends."""
        last = threading.Timer(LAST_SECONDS, os._exit, (EXIT_RANK_DIED,))
        last.daemon = True
        last.start()
        try:
            text = self._report()
        except Exception as error:
            text = f"rank {self._comm.rank} of {self._comm.size} has made no progress; its report failed: {error!r}"
        if messages.report(messages.failed(text, EXIT_RANK_DIED)):
            sleep(LAUNCHER_SECONDS)
        else:
            messages.send(2, f"{text}\n".encode())
        if self._comm.name != "mpi":  # which ends all ranks by itself, with the code of this one
            self._kill_unable()
        self._comm.abort(EXIT_RANK_DIED)

    def _kill_unable(self) -> None:
        """Ranks that are stopped, or deaf, would not notice that the job has ended."""
        for status in self._board.statuses(monotonic()):
            if status.state == "stopped" or (status.state == "running" and status.silence > SILENT_SECONDS):
                with suppress(OSError):
                    os.kill(status.process, signal.SIGKILL)


def _blame(own: Status, others: list[Status], several_machines: bool) -> str:
    behind = [f"rank {status.rank} ({reason})" for status in others if (reason := _lag(status, own, others))]
    if behind:
        return f"behind: {', '.join(behind)}"
    if own.is_waiting and several_machines:
        return "all ranks of this machine wait: the cause is on another machine"
    return "no other rank of this machine is behind"


def _lag(status: Status, own: Status, others: list[Status]) -> str | None:
    """In what way a rank is behind the others; None if it is not."""
    step = f"step {status.step}"
    if status.presence != "here":
        return f"{step}, {status.presence}"
    if status.state in ("stopped", "ended"):
        return f"{step}, its process {status.process} {'is stopped' if status.state == 'stopped' else 'has ended'}"
    if status.silence > SILENT_SECONDS:
        return f"{step}, has not responded for {status.silence:.0f} s"
    furthest = max(other.step for other in (own, *others))
    if status.step < furthest or (own.is_waiting and not status.is_waiting):
        return f"{step}, {status.place}" if status.place else step
    return None


def _can_answer(status: Status) -> bool:
    return status.presence == "here" and status.state in ("running", "unknown")


def _show_stacks_on_signal() -> bool:
    """Let SIGUSR1 show this process's stacks, unless the signal has another use here; False then."""
    if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
        return False
    try:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    except (AttributeError, ValueError, RuntimeError, OSError):  # no real error output
        return False
    return True


@final
class Pace:
    """Time without progress, and its limit: the given one, or one that follows the median of what was usual."""

    def __init__(self, limit_seconds: float | None = None) -> None:
        if limit_seconds is not None and not limit_seconds > 0:
            raise ConfigError(f"a limit of {limit_seconds} s without progress: expected more than 0")
        self._given = limit_seconds
        self._intervals: deque[float] = deque(maxlen=_NUM_INTERVALS)
        self._seen = 0
        self.longest_gap = math.inf
        """So much of the time between two notes counts: a job that was suspended and resumes has not stalled."""
        self.idle = 0.0
        """Seconds since the last sign of progress."""

    def note(self, count: int, elapsed: float) -> None:
        """``elapsed`` more seconds have gone by, and there were ``count`` signs of progress in all."""
        self.idle += min(elapsed, self.longest_gap)
        if count != self._seen:
            self._intervals.append(self.idle / (count - self._seen))
            self._seen, self.idle = count, 0.0

    @property
    def limit(self) -> float:
        """Seconds that may go by without progress."""
        if self._given is not None:
            return self._given
        return max(LEAST_SECONDS, MANY_TIMES * median(self._intervals)) if self._intervals else LEAST_SECONDS
