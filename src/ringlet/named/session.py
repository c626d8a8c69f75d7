"""The named collectives of this process, from :func:`init` to :func:`shutdown`: process sets and their engines."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, final

from ringlet.allocator import keep_freed_memory
from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.comm.world import NotInitializedError
from ringlet.forks import Owner
from ringlet.named import objects
from ringlet.named.engine import Engine
from ringlet.named.errors import ArgumentsError
from ringlet.named.process_sets import ProcessSet
from ringlet.named.settings import TRACE
from ringlet.named.trace import Trace
from ringlet.named.worlds import can_use_threads, choose_world

__all__ = [
    "NotInitializedError",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "engine",
    "global_process_set",
    "init",
    "is_initialized",
    "process_sets",
    "remove_process_set",
    "shutdown",
    "start_timeline",
    "stop_timeline",
]

global_process_set = ProcessSet([])
"""All ranks."""
global_process_set.ranks = None


@final
class _Session:
    """What is in use between ``init`` and ``shutdown``."""

    def __init__(self, communicator: Communicator) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self.owner = Owner()
        self.engines: dict[int, Engine] = {}
        self.sets: dict[int, ProcessSet] = {}
        self.trace: Trace | None = None
        self._num_sets = 0
        self._threads = can_use_threads(communicator)
        everybody = range(communicator.size)
        self.take_in(global_process_set, everybody, communicator.group(everybody))

    def take_in(self, process_set: ProcessSet, ranks: Iterable[int], communicator: Communicator | None) -> None:
        """Give the set its number and, on its ranks, an engine."""
        number, self._num_sets = self._num_sets, self._num_sets + 1
        process_set.take_in(number, ranks, self.rank)
        self.sets[number] = process_set
        if communicator is not None:
            members = process_set.ranks or ()
            self.engines[number] = Engine(communicator, members, thread=self._threads)
            self.engines[number].set_trace(self.trace)

    def let_go(self, number: int) -> None:
        """End one set."""
        found = self.engines.pop(number, None)
        if found is not None:
            found.close()
        self.sets.pop(number).let_go()

    def objection_to(self, process_set: ProcessSet) -> str:
        """Why a set cannot be added; empty if it can."""
        ranks = process_set.ranks or ()
        if process_set.process_set_id is not None:
            return f"{process_set} is in use already"
        if not ranks or not all(0 <= rank < self.size for rank in ranks):
            return f"{process_set}: expected ranks from 0 to {self.size - 1}, at least one"
        same = next((known for known in self.sets.values() if known.ranks == ranks), None)
        return "" if same is None else f"{process_set} has the same ranks as {same}"


_session: _Session | None = None
_excluded = ""
"""Why this process is in no world, after ``init`` with the ranks of others."""


def init(comm: Any = None, process_sets: Iterable[ProcessSet | Iterable[int]] | str | None = None) -> None:
    """Find the other ranks; every rank must call, and give the same ``process_sets``. Harmless when repeated.

    ``comm`` is None (all ranks), a list of ranks that form the world of those who are in it (others cannot use it; all
    processes of the job must call, several lists may be given by different processes), or an mpi4py communicator.
    ``process_sets`` may be the word "dynamic": sets can always be added later.
    """
    global _session, _excluded
    if _session is not None or _excluded:
        return
    communicator = choose_world(comm)
    if communicator is None:
        _excluded = f"it is not among the ranks {sorted(comm)} that init was called with"
        return
    keep_freed_memory()
    session = _Session(communicator)
    _session = session
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # behind all that connecting has registered: it runs before that
    if trace := os.environ.get(TRACE):
        start_timeline(trace)
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            add_process_set(process_set)


def is_initialized() -> bool:
    """Whether :func:`init` has been called and :func:`shutdown` has not."""
    return _session is not None


def shutdown() -> None:
    """Leave all process sets, until :func:`init` is called again. Unfinished operations of other ranks fail.

    The end of the process does it too. Waits a few seconds at most for ranks that do not answer.
    """
    global _session, _excluded
    session, _session, _excluded = _session, None, ""
    if session is None or not session.owner.is_here:  # a forked process has no part in it
        return
    for found in session.engines.values():
        found.leave()
    for number in sorted(session.sets, reverse=True):
        session.let_go(number)
    if session.trace is not None:
        session.trace.close()
    global_process_set.ranks = None
    world.shutdown()


def engine(process_set: ProcessSet | None = None) -> Engine:
    """The engine of a process set (default: of all ranks)."""
    session = _initialized()
    if process_set is None:
        return session.engines[0]
    number = process_set.process_set_id
    if number is None or session.sets.get(number) is not process_set:
        raise ArgumentsError(f"{process_set} is not in use: add it with add_process_set(…) first, on every rank")
    if number not in session.engines:
        raise ArgumentsError(f"rank {session.rank} cannot use {process_set}: it is not one of its ranks")
    return session.engines[number]


def process_sets() -> dict[int, ProcessSet]:
    """All sets in use, by their numbers."""
    return dict(_initialized().sets)


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Take in a set; every rank of the job must call, with the same ranks."""
    session = _initialized()
    wanted = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = wanted.ranks or ()
    communicator = session.engines[0].group(ranks, session.objection_to(wanted))
    session.take_in(wanted, ranks, communicator)
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """End a set; every rank of the job must call. False if it is not in use, or the set of all ranks."""
    session = _initialized()
    number = process_set.process_set_id
    if not number or session.sets.get(number) is not process_set:
        return False
    session.engines[0].agree("remove_process_set", [number])
    session.let_go(number)
    return True


def broadcast_object(
    value: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """The value (see :mod:`ringlet.io.encoding`) of rank ``root_rank``; every rank of the set must call."""
    return objects.broadcast_object(engine(process_set), value, root_rank, name)


def allgather_object(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> list[Any]:
    """The values of all ranks of the set, in their order; each of them must call."""
    return objects.allgather_object(engine(process_set), value, name)


def start_timeline(path: str | Path) -> None:
    """Write down when operations were submitted, started and finished, on rank 0; for chrome://tracing and Perfetto."""
    session = _initialized()
    if session.trace is not None:
        raise ArgumentsError("a timeline is being written already: call stop_timeline() first")
    if session.rank == 0:
        session.trace = Trace(Path(path), session.rank)
        for found in session.engines.values():
            found.set_trace(session.trace)


def stop_timeline() -> None:
    """End the file that :func:`start_timeline` began; nothing happens without one."""
    session = _initialized()
    trace, session.trace = session.trace, None
    for found in session.engines.values():
        found.set_trace(None)
    if trace is not None:
        trace.close()


def _initialized() -> _Session:
    if _session is None:
        why = f"this process takes no part: {_excluded}" if _excluded else "ringlet has not been initialised"
        raise NotInitializedError(f"{why}: call init() first, on every rank")
    return _session
