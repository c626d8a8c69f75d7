"""Rounds: ranks tell each other what they have submitted and carry out what all have. One thread of a rank at a time.

The thread that waits for a submission runs the rounds; else a thread does. A rank enters rounds while it has unfinished
submissions and otherwise about once a second: so others, who are blocked in their round until it comes, learn that they
wait for something that it has not submitted. Between rounds in which no rank had anything new ranks rest a little.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any, final

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.comm.node import NodeCommunicator
from ringlet.errors import RankFailedError, RingletError
from ringlet.forks import Owner
from ringlet.named.execution import Execution, Work
from ringlet.named.monitoring import Patience, StallWatch, Trace
from ringlet.named.submissions import (
    ArgumentsError,
    BrokenCollectivesError,
    CollectiveError,
    DisagreementError,
    Handle,
    Key,
    LostRankError,
)
from ringlet.named.table import Entry, Exchange, Outcome, Table

FIRST_NAP_SECONDS = 0.0001
LONGEST_NAP_SECONDS = 0.002
"""Between rounds in which no rank had anything new; a submission of this rank ends a nap."""
SECONDS_TO_LEAVE = 5.0
"""How long closing waits until all ranks know of it: another rank may have failed and never come."""
SECONDS_TO_END = 1.0
"""How long closing then waits for the thread."""

Finished = tuple[Handle, list[Any], BaseException | None]


@final
class Rounds:
    """Of one rank. ``add`` takes its submissions; everything else happens while someone drives."""

    def __init__(self, communicator: Communicator, ranks: Sequence[int], patience: Patience, *, thread: bool) -> None:
        self.trace: Trace | None = None
        self.num_joins = 0
        """How often all ranks have joined."""
        self._communicator = communicator
        self._owner = Owner()
        self._ranks = list(ranks)
        self._patience = patience
        self._table = Table(ranks)
        self._exchange = Exchange(communicator, self._table.known)
        self._execution = Execution(communicator, ranks)
        self._stalls = StallWatch(self._table, ranks, communicator.rank, patience)
        self._lock = threading.Lock()
        self._work_came = threading.Condition(self._lock)
        self._something_finished = threading.Condition(self._lock)
        self._nap_ended = threading.Condition(self._lock)
        self._in_flight: dict[Key, Handle] = {}
        self._unnoticed: set[Key] = set()
        """Finished in the background, and the program has neither asked for them nor waited for anything since."""
        self._new: list[Handle] = []
        self._num_waiting = 0
        self._driving = self._napping = self._urgent = self._leaving = False
        self._nap = 0.0
        self._began = self._ended = monotonic()
        self._error: CollectiveError | None = None
        self._thread: threading.Thread | None = None
        if thread:
            self._thread = threading.Thread(target=self._work, name="ringlet-named", daemon=True)
            self._thread.start()

    # -- for those who submit and wait --------------------------------------------------------------------------------
    def add(self, handle: Handle, *, background: bool) -> bool:
        """Take in a submission; False if its name is under way. Without ``background`` it needs someone who waits."""
        with self._lock:
            if self._error is not None:
                raise _for_handle(self._error, handle)
            if handle.key in self._in_flight or handle.key in self._unnoticed:
                return False
            self._in_flight[handle.key] = handle
            self._new.append(handle)
            if self._napping:
                self._nap_ended.notify()
            if background:
                handle.in_background = True
                self._hurry()
            return True

    def drive(self, handle: Handle) -> None:
        """Run rounds until it has finished, or sleep while someone else does."""
        if not self._owner.is_here:
            raise CollectiveError(self._owner.explain("wait"))
        with self._lock:
            while self._driving and not handle.finished:
                handle.awaited = True
                self._num_waiting += 1
                try:
                    self._something_finished.wait(self._patience.heartbeat)
                finally:
                    self._num_waiting -= 1
                self._notice_silence()
            if handle.finished:
                self._pass_on()
                return
            self._driving = True
        try:
            while not handle.finished:
                self._round()
        finally:
            self._stop_driving()

    def nudge(self) -> None:
        """Let the thread see to unfinished submissions."""
        with self._lock:
            self._hurry()

    def learned(self, handle: Handle | None = None) -> None:
        """Names of what the program knows to have finished can be used again.

        So whether a name is taken follows from what the program did, and not from how fast collectives were.
        """
        if self._unnoticed:
            with self._lock:
                if handle is None:
                    self._unnoticed.clear()
                else:
                    self._unnoticed.discard(handle.key)

    def leave(self) -> None:
        """Tell the others, as soon as possible, that this rank leaves: unfinished submissions fail on all ranks."""
        with self._lock:
            self._leaving = True
            if self._napping:
                self._nap_ended.notify()
            self._hurry()

    def close(self) -> None:
        """Leave and wait a bounded time until the others know."""
        self.leave()
        if self._thread is None:
            self._leave_alone()
        deadline = monotonic() + SECONDS_TO_LEAVE
        with self._lock:
            while self._error is None and (patience := deadline - monotonic()) > 0:
                self._something_finished.wait(patience)
        self._end(self._shut_down("this rank"))
        if self._thread is not None:
            local = self._communicator.local
            if self._driving and isinstance(local, NodeCommunicator):
                local.fail()  # wakes a thread that still waits for ranks which did not come
            self._thread.join(SECONDS_TO_END)
        self._communicator.close()

    def _leave_alone(self) -> None:
        """Without a thread no one else tells the others."""
        with self._lock:
            drives = not self._driving and self._error is None
            self._driving = self._driving or drives
        if drives:
            try:
                while self._error is None:
                    self._round()
            finally:
                self._stop_driving()

    # -- driving ------------------------------------------------------------------------------------------------------
    def _hurry(self) -> None:
        self._urgent = True
        if not self._driving:
            self._work_came.notify()

    def _stop_driving(self) -> None:
        with self._lock:
            self._driving = False
            self._pass_on()

    def _pass_on(self) -> None:
        """If no one drives and there is more to do, someone who waits takes over, else the thread."""
        if self._driving:
            return
        if self._num_waiting:
            self._something_finished.notify_all()
        elif self._leaving or (self._urgent and self._in_flight):
            self._work_came.notify()

    def _work(self) -> None:
        """The thread: rounds while there are submissions in a hurry that no one waits for, and seldom one without."""
        while self._take_over():
            try:
                self._round()
                while self._in_flight and self._urgent and not self._num_waiting:
                    self._round()
            finally:
                self._stop_driving()

    def _take_over(self) -> bool:
        """Sleep until a round is due and no one runs one; False at the end."""
        with self._lock:
            while self._error is None:
                busy = self._driving or self._num_waiting
                if not busy and (self._leaving or (self._urgent and self._in_flight)):
                    break
                rest = self._patience.heartbeat - (monotonic() - self._ended)
                if not busy and rest <= 0:
                    break
                self._work_came.wait(self._patience.heartbeat if busy else rest)
                self._notice_silence()
            self._driving = self._error is None
            return self._driving

    def _notice_silence(self) -> None:
        if self._driving and self._began > self._ended:
            self._stalls.report_silence(list(self._in_flight.values()), monotonic() - self._began)

    # -- a round ------------------------------------------------------------------------------------------------------
    def _round(self) -> None:
        """Any failure in here is the end: the ranks would not be in step."""
        try:
            new = self._take_new()
            if self._error is None:
                self._advance(new)
        except RingletError as error:
            kind = LostRankError if isinstance(error, RankFailedError) else BrokenCollectivesError
            self._end(kind(str(error)))
            self._communicator.close()
        except BaseException as error:
            self._end(BrokenCollectivesError(f"a round of rank {self._own} failed: {type(error).__name__}: {error}"))
            self._communicator.close()  # the others would wait for this rank forever
            raise

    def _take_new(self) -> list[Handle]:
        """What was submitted since the last round; rests first, if nothing was and no rank had anything then."""
        with self._lock:
            if self._nap and not (self._new or self._leaving):
                self._napping = True
                try:
                    self._nap_ended.wait(self._nap)
                finally:
                    self._napping = False
            new, self._new = self._new, []
            return new

    def _advance(self, new: Sequence[Handle]) -> None:
        joins, submissions = False, []
        for handle in new:
            if handle.kind == "join":
                joins = True
            else:
                submissions.append((handle.signature, handle.key.number))
        expired = self._stalls.look(self._in_flight)
        self._began = monotonic()
        told = self._exchange.tell(submissions, expired, joins=joins, leaves=self._leaving)
        self._ended = monotonic()
        outcome = self._table.advance(told)
        if self.trace is not None and not outcome.quiet:
            self.trace.mark_cycle(self._began)
        self._nap = min(LONGEST_NAP_SECONDS, 2 * self._nap or FIRST_NAP_SECONDS) if outcome.quiet else 0.0
        finished = self._carry_out(outcome)
        if finished:
            self._finish(finished)
        if outcome.leaving:
            self._end(self._shut_down("rank " + ", ".join(str(self._ranks[rank]) for rank in outcome.leaving)))

    def _carry_out(self, outcome: Outcome) -> list[Finished]:
        """Do what was decided."""
        finished: list[Finished] = []
        works: list[Work] = []
        owners: list[Handle | None] = []
        for entry in outcome.decided:
            submitted = self._communicator.rank in entry.signatures
            handle = self._in_flight.get(entry.key) if submitted else None
            if not entry.failure:
                owners.append(handle)
                works.append(_work_of(entry, handle))
            elif handle is not None:
                finished.append((handle, [], _error_of(entry)))
        self._execution.carry_out(works)
        for handle, work in zip(owners, works, strict=True):
            if handle is not None:
                finished.append((handle, work.results, work.error))
                if self.trace is not None:
                    times = handle.submitted, work.started, work.ended
                    self.trace.add(handle.name, handle.key.stem, handle.kind, *times)
        if outcome.last_joined is not None:
            self.num_joins += 1
            last = np.array(self._ranks[outcome.last_joined])
            finished += [(found, [last], None) for found in list(self._in_flight.values()) if found.kind == "join"]
        return finished

    def _finish(self, finished: Sequence[Finished]) -> None:
        with self._lock:
            awaited = False
            for handle, results, error in finished:
                if self._in_flight.pop(handle.key, None) is None:
                    continue  # given up meanwhile
                handle.finish(results, error)
                if handle.in_background and not handle.awaited:
                    self._unnoticed.add(handle.key)
                awaited = awaited or handle.awaited
            if not self._in_flight:
                self._urgent = False
            if awaited:
                self._something_finished.notify_all()

    def _end(self, error: CollectiveError) -> None:
        """No more rounds: every unfinished submission fails. The first reason stays."""
        with self._lock:
            self._error = self._error or error
            for handle in self._in_flight.values():
                handle.finish([], _for_handle(self._error, handle))
            self._in_flight.clear()
            self._new.clear()
            self._urgent = False
            self._something_finished.notify_all()
            self._work_came.notify_all()

    @property
    def _own(self) -> int:
        return self._ranks[self._communicator.rank]

    def _shut_down(self, who: str) -> CollectiveError:
        return CollectiveError(f"the process set of ranks {self._ranks} was shut down by {who}")


def _work_of(entry: Entry, handle: Handle | None) -> Work:
    participants = list(entry.signatures)
    if handle is None:
        return Work(entry.signature, participants, None)
    return Work(entry.signature, participants, handle.submission, handle.buffer, handle.action)


def _error_of(entry: Entry) -> CollectiveError:
    kind = DisagreementError if entry.disagrees else ArgumentsError if entry.wrong_arguments else CollectiveError
    return kind(f"{entry.signature.kind} '{entry.key}' did not take place: {entry.failure}")


def _for_handle(error: CollectiveError, handle: Handle) -> CollectiveError:
    """The same error for one submission, so that tracebacks do not mix."""
    return type(error)(f"{handle.kind} '{handle.name}' did not take place: {error}")
