"""The named collectives of this process, from :func:`init` to :func:`shutdown`: its world and its process sets."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, final

from ringlet.allocator import keep_freed_memory
from ringlet.comm import horovod_variables, world
from ringlet.comm.contract import Communicator
from ringlet.comm.world import NotInitializedError
from ringlet.forks import Owner
from ringlet.named.collectives import NamedCollectives
from ringlet.named.monitoring import MARK_CYCLES, TRACE, Trace
from ringlet.named.submissions import ArgumentsError

__all__ = [
    "NotInitializedError",
    "ProcessSet",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "collectives",
    "global_process_set",
    "init",
    "is_initialized",
    "process_sets",
    "remove_process_set",
    "shutdown",
    "start_timeline",
    "stop_timeline",
]


@final
class ProcessSet:
    """Some ranks of the job, in their order, who do collectives among themselves.

    It can be used once ``init`` or ``add_process_set`` has taken it in.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        given = [int(rank) for rank in ranks]
        if len(set(given)) != len(given):
            raise ArgumentsError(f"a process set of ranks {given}: expected every rank once")
        self.ranks: list[int] | None = sorted(given)
        """None: all ranks, of a job that is not initialised."""
        self.process_set_id: int | None = None
        """The same on every rank; 0 is the set of all. None: not in use."""
        self._own: int | None = None

    def size(self) -> int:
        """The number of its ranks."""
        return len(self._used())

    def included(self) -> bool:
        """Whether this process is in it."""
        return self._own in self._used()

    def rank(self) -> int:
        """This process's number within the set."""
        ranks = self._used()
        if self._own is None or self._own not in ranks:
            raise ArgumentsError(f"rank {self._own} is not in the process set of ranks {list(ranks)}")
        return ranks.index(self._own)

    def take_in(self, number: int, ranks: Iterable[int], own: int) -> None:
        """For sessions: the set can be used from now on, by the rank ``own``."""
        self.process_set_id, self.ranks, self._own = number, list(ranks), own

    def let_go(self) -> None:
        """For sessions: it cannot be used any longer."""
        self.process_set_id = self._own = None

    def _used(self) -> list[int]:
        if self.process_set_id is None or self.ranks is None:
            raise ArgumentsError(
                f"{self} is not in use: pass it to init(process_sets=[…]) or add_process_set(…) first, on every rank"
            )
        return self.ranks

    def __repr__(self) -> str:
        ranks = "all" if self.ranks is None else self.ranks
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={ranks})"


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
        self.collectives: dict[int, NamedCollectives] = {}
        self.sets: dict[int, ProcessSet] = {}
        self.trace: Trace | None = None
        self._num_sets = 0
        self._threads = _can_use_threads(communicator)
        ranks = range(communicator.size)
        self.take_in(global_process_set, ranks, communicator.group(ranks))

    def take_in(self, process_set: ProcessSet, ranks: Iterable[int], communicator: Communicator | None) -> None:
        """Give the set its number and, on its ranks, its collectives."""
        number, self._num_sets = self._num_sets, self._num_sets + 1
        process_set.take_in(number, ranks, self.rank)
        self.sets[number] = process_set
        if communicator is not None:
            members = process_set.ranks or ()
            self.collectives[number] = NamedCollectives(communicator, members, thread=self._threads)
            self.collectives[number].set_trace(self.trace)

    def let_go(self, number: int) -> None:
        """End one set."""
        found = self.collectives.pop(number, None)
        if found is not None:
            found.close()
        self.sets.pop(number).let_go()

    def objection_to(self, process_set: ProcessSet) -> str:
        """Why a set cannot be added; empty if it can."""
        ranks = process_set.ranks or []
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
    horovod_variables.adopt()
    communicator = _choose_world(comm)
    if communicator is None:
        _excluded = f"it is not among the ranks {sorted(comm)} that init was called with"
        return
    keep_freed_memory()
    session = _Session(communicator)
    _session = session
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # after all that connecting has registered: it runs before that
    if trace := os.environ.get(TRACE):
        start_timeline(trace, mark_cycles=bool(os.environ.get(MARK_CYCLES)))
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            add_process_set(process_set)


def is_initialized() -> bool:
    """Whether :func:`init` has been called and :func:`shutdown` has not."""
    return _session is not None


def shutdown() -> None:
    """Leave all process sets, until :func:`init` is called again. Unfinished collectives of other ranks fail.

    The end of the process does it too. Waits a few seconds at most for ranks that do not answer.
    """
    global _session, _excluded
    session, _session, _excluded = _session, None, ""
    if session is None or not session.owner.is_here:  # a forked process has no part in it
        return
    for found in session.collectives.values():
        found.leave()
    for number in sorted(session.sets, reverse=True):
        session.let_go(number)
    if session.trace is not None:
        session.trace.close()
    global_process_set.ranks = None
    world.shutdown()


def collectives(process_set: ProcessSet | None = None) -> NamedCollectives:
    """Those of a process set (default: of all ranks)."""
    session = _initialized()
    if process_set is None:
        return session.collectives[0]
    number = process_set.process_set_id
    if number is None or session.sets.get(number) is not process_set:
        raise ArgumentsError(f"{process_set} is not in use: add it with add_process_set(…) first, on every rank")
    if number not in session.collectives:
        raise ArgumentsError(f"rank {session.rank} cannot use {process_set}: it is not one of its ranks")
    return session.collectives[number]


def process_sets() -> dict[int, ProcessSet]:
    """All sets in use, by their numbers."""
    return dict(_initialized().sets)


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Take in a set; every rank of the job must call, with the same ranks."""
    session = _initialized()
    wanted = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = wanted.ranks or ()
    communicator = session.collectives[0].group(ranks, session.objection_to(wanted))
    session.take_in(wanted, ranks, communicator)
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """End a set; every rank of the job must call. False if it is not in use, or the set of all ranks."""
    session = _initialized()
    number = process_set.process_set_id
    if not number or session.sets.get(number) is not process_set:
        return False
    session.collectives[0].agree("remove_process_set", [number])
    session.let_go(number)
    return True


def broadcast_object(
    value: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """The value (see :mod:`ringlet.io.encoding`) of rank ``root_rank``; every rank of the set must call."""
    return collectives(process_set).broadcast_object(value, root_rank, name)


def allgather_object(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> list[Any]:
    """The values of all ranks of the set, in their order; each of them must call."""
    return collectives(process_set).allgather_object(value, name)


def start_timeline(file_path: str | Path, mark_cycles: bool = False) -> None:
    """Write down when collectives were submitted, started and finished, on rank 0: for Perfetto, chrome://tracing.

    ``mark_cycles``: also when ranks told each other what they have submitted.
    """
    session = _initialized()
    if session.trace is not None:
        raise ArgumentsError("a timeline is being written already: call stop_timeline() first")
    if session.rank == 0:
        session.trace = Trace(Path(file_path), session.rank, mark_cycles=mark_cycles)
        for found in session.collectives.values():
            found.set_trace(session.trace)


def stop_timeline() -> None:
    """End the file that :func:`start_timeline` began; nothing happens without one."""
    session = _initialized()
    trace, session.trace = session.trace, None
    for found in session.collectives.values():
        found.set_trace(None)
    if trace is not None:
        trace.close()


def _initialized() -> _Session:
    if _session is None:
        why = f"this process takes no part: {_excluded}" if _excluded else "ringlet has not been initialised"
        raise NotInitializedError(f"{why}: call init() first, on every rank")
    return _session


# -- which processes form the world -----------------------------------------------------------------------------------
def _choose_world(comm: Any) -> Communicator | None:
    """Initialise the world of ``session.init(comm)``; None if this process is not in it. Every process must call."""
    if comm is None:
        world.init()
        return world.communicator()
    if hasattr(comm, "Get_rank") and hasattr(comm, "Dup"):
        from ringlet.comm.mpi import mpi_communicator

        return world.use(mpi_communicator(comm))
    if not isinstance(comm, Iterable) or isinstance(comm, str):
        raise ArgumentsError(f"comm={comm!r}: expected None, a list of ranks or an mpi4py communicator")
    return _choose_ranks(sorted({int(rank) for rank in comm}))


def _choose_ranks(ranks: list[int]) -> Communicator | None:
    """Every process tells its list; every list becomes a group of those that gave it."""
    world.init()
    whole = world.communicator()
    lists = [json.loads(told) for told in whole.allgather_bytes(json.dumps(ranks).encode())]
    found = None
    for wanted in dict.fromkeys(tuple(told) for told in lists):
        givers = [rank for rank in wanted if 0 <= rank < whole.size and tuple(lists[rank]) == wanted]
        if len(givers) != len(wanted) or not wanted:
            world.shutdown()
            raise ArgumentsError(
                f"init(comm={list(wanted)}) was called, but rank {sorted(set(wanted) - set(givers))} called with other "
                f"ranks or does not exist: expected the same list on all of its ranks, out of 0 to {whole.size - 1}"
            )
        group = whole.group(wanted)
        if list(wanted) == ranks:
            found = group
    if found is None:
        world.shutdown()
        return None
    return world.use(found)


def _can_use_threads(communicator: Communicator) -> bool:
    """Whether a thread of its own may communicate while the program does."""
    if communicator.name != "mpi" or len(communicator.local_sizes) == 1:
        return True  # shared memory, or libraries that always allow it
    from ringlet.comm.mpi import threads_supported

    return threads_supported()
