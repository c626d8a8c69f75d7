"""Work under way in a process group: threads that do it in the order of submission, and what callers wait for.

A :class:`Lane` is a communicator with a thread of its own. PyTorch's contract for groups is the same as Ringlet's for
communicators: every rank submits the same collectives in the same order. So one thread per group is enough, and
gradients travel while the backward pass computes the next ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from time import monotonic
from typing import Any, final

import torch
from torch import Tensor
from torch._C import _distributed_c10d
from torch.distributed import Work
from torch.futures import Future

from ringlet.comm.contract import Communicator
from ringlet.comm.node import NodeCommunicator
from ringlet.errors import CommunicationError
from ringlet.forks import Owner
from ringlet.torch.process_group.profiling import Record

Job = Callable[[Communicator], Any]
"""Does something on the communicator of a lane, and gives what it has written: tensors in lists."""

SECONDS_TO_FINISH = 10.0
"""How long closing waits for work that is under way: another rank may have failed and never come."""
SECONDS_TO_LEAVE = 1.0
"""How long a thread gets to leave a collective that was given up."""
_LONGEST_PAUSE = 5.0
_NO_LIMIT = timedelta(0)


@final
class RingletWork(Work):
    """Something that was submitted. Errors of the communicator are raised by :meth:`wait` as they are.

    PyTorch can make works out of futures (``_create_work_from_future``), but the ``wait`` of those returns as if
    all was well when the future holds an error.
    """

    def __init__(self, what: str, limit: timedelta | None = None, record: Record | None = None) -> None:
        """``what`` it is, for messages; ``limit`` is how long :meth:`wait` waits at most (default: no limit).

        ``record`` ends with it (``profiling``).
        """
        super().__init__()
        self.what = what
        self._limit = limit
        self._record = record
        self._owner = Owner()
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._source = -1
        self._gate: Future[Any] | None = None
        self._future: Future[Any] | None = None

    def finish(self, value: Any = None, *, error: BaseException | None = None, source: int = -1) -> None:
        """Tell all who wait; only the first call counts."""
        with self._lock:
            if self._finished.is_set():
                return
            self._value, self._error, self._source = value, error, source
            if self._record is not None:
                self._record.end()
            self._finished.set()
            gate = self._gate
        if gate is not None:
            gate.set_result(None)

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """True when it is done; raises what went wrong, or :class:`CommunicationError` if it takes too long."""
        if not self._finished.is_set():
            self._owner.check(f"wait for {self.what}")  # its thread is not in a copy of the rank
        limit = timeout if timeout > _NO_LIMIT else self._limit
        if not self._finished.wait(None if limit is None else limit.total_seconds()):
            assert limit is not None
            raise CommunicationError(too_long(self.what, limit.total_seconds()))
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[Any]:
        """A future of :meth:`result`. Callbacks run in the thread that does the work, or at once if it is done."""
        with self._lock:
            if self._future is None:
                # Only a callback that raises gives a future that holds an error for C++ too.
                self._gate = Future()
                self._future = self._gate.then(self._outcome)
                late = self._finished.is_set()
            else:
                late = False
            gate, future = self._gate, self._future
        if late and gate is not None:
            gate.set_result(None)
        return future

    def _outcome(self, _: Future[Any]) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def is_completed(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return self._finished.is_set()

    def is_success(self) -> bool:
        """Whether it is done and nothing went wrong."""
        return self._finished.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong, if anything has."""
        return self._error

    def result(self) -> list[Tensor]:
        """The tensors that were written; waits for them."""
        self.wait()
        value: list[Tensor] = self._value
        return value

    def source_rank(self) -> int:
        """Of a message that was received: the sender's rank in the group."""
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def synchronize(self) -> None:
        """The same as :meth:`wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same as :meth:`wait`: results lie in the memory of the processor."""
        self.wait()


def lasting(work: Work) -> Work:
    """The same work for C++ code that keeps it: of a work made in Python it keeps the half that cannot answer alone.

    Waiting for the result tells of no error; the future that it gives does.
    """
    if not isinstance(work, RingletWork | JointWork):
        return work
    make: Any = _distributed_c10d
    kept: Work = make._create_work_from_future(work.get_future())
    return kept


@final
class JointWork(Work):
    """Several works that count as one."""

    def __init__(self, works: list[RingletWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """True when all are done."""
        return all(work.wait(timeout) for work in self._works)

    def get_future(self) -> Future[Any]:
        """A future of all results in one list."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: [tensor for future in done.value() for tensor in future.value() or []])

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all are done and nothing went wrong."""
        return all(work.is_success() for work in self._works)

    def result(self) -> list[Tensor]:
        """The tensors that were written by all; waits for them."""
        return [tensor for work in self._works for tensor in work.result() or []]


@final
class Lane:
    """Does jobs in a thread of its own, one after the other, on the communicator that ``connect`` makes there."""

    def __init__(self, name: str, connect: Callable[[threading.Event], Communicator], patience: timedelta) -> None:
        """A job that takes longer than ``patience`` fails, and with it this lane: its ranks are no longer in step.

        ``connect`` is given an event that tells it to stop.
        """
        self.patience = patience
        self._name = name
        self._connect = connect
        self._communicator: Communicator | None = None
        self._jobs: SimpleQueue[tuple[RingletWork, Job] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._running: tuple[RingletWork, float] | None = None
        self._broken: BaseException | None = None
        self._closed = threading.Event()

    def submit(self, what: str, job: Job, limit: timedelta | None = None, record: Record | None = None) -> RingletWork:
        """Queue a job. A job submitted by a callback of another one runs at once: the thread could not wait for it."""
        work = RingletWork(what, limit, record)
        if self._closed.is_set():
            raise CommunicationError(f"{what} was called on a process group that has been destroyed")
        if threading.current_thread() is self._thread:
            running = self._running
            self._run(work, job)
            self._running = running
            return work
        with self._lock:
            self._start()
            if self._broken is None:
                self._jobs.put((work, job))
                return work
        work.finish(error=self._broken)
        return work

    def close(self, seconds: float = SECONDS_TO_FINISH) -> None:
        """Finish what was submitted, if that takes no longer than ``seconds``; let go of the communicator."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            thread, is_sound = self._thread, self._broken is None
        self._jobs.put(None)
        if thread is not None and is_sound:
            thread.join(seconds)
        self.break_off(CommunicationError("the process group was destroyed before this could be done"))
        for left in (thread, self._watcher):  # the interpreter may end next: no thread of ours is to see that
            if left is not None and left is not threading.current_thread():
                left.join(SECONDS_TO_LEAVE)
        if self._communicator is not None:
            self._communicator.close()

    def break_off(self, error: BaseException) -> None:
        """Let everything that was submitted fail, now and from now on; other ranks that wait for this one fail too."""
        with self._lock:
            self._broken = self._broken or error
            running = self._running
            waiting = [] if running is None else [running[0]]
            while not self._jobs.empty():
                entry = self._jobs.get()
                waiting += [] if entry is None else [entry[0]]
            self._jobs.put(None)
        for work in waiting:
            work.finish(error=error)
        if running is not None:
            leave(self._communicator)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"ringlet-{self._name}", daemon=True)
            self._watcher = threading.Thread(target=self._watch, name=f"ringlet-{self._name}-limit", daemon=True)
            self._thread.start()
            self._watcher.start()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            work, job = entry
            self._running = (work, monotonic())
            self._run(work, job)
            self._running = None
            del entry, work, job  # let go of the caller's tensors while idle

    def _run(self, work: RingletWork, job: Job) -> None:
        try:
            if self._communicator is None:
                self._communicator = self._connect(self._closed)
        except BaseException as error:
            self.break_off(error)
            return
        try:
            value = job(self._communicator)
        except BaseException as error:
            work.finish(error=error)
        else:
            work.finish(value)

    def _watch(self) -> None:
        """A thread that looks every now and then whether the job under way takes too long."""
        while True:
            limit = self.patience.total_seconds()
            if self._closed.wait(min(limit / 4, _LONGEST_PAUSE)):
                return
            running = self._running
            if running is not None and monotonic() - running[1] > limit:
                self.break_off(CommunicationError(too_long(running[0].what, limit)))
                return


def leave(communicator: Communicator | None) -> None:
    """Get a thread out of a collective on this communicator, where that is possible.

    A thread that is still in there when the interpreter ends would bring the process down.
    """
    local = None if communicator is None else communicator.local
    if isinstance(local, NodeCommunicator):
        local.fail()


def too_long(what: str, seconds: float) -> str:
    """The message about something that other ranks did not take part in."""
    return (
        f"{what} was not done within {seconds:g} s: not all ranks have called it. Every rank must call the same "
        "collectives in the same order; if they just need longer, pass a longer timeout to init_process_group"
    )
