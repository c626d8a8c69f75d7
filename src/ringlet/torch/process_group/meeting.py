"""How the ranks of a process group find each other: by PyTorch's store, to which all of them have a connection.

On one machine the group is a node communicator in shared memory. Between machines MPI carries the bytes if the program
runs under it, else Gloo. Only members take part in making a group, as PyTorch has it; so the communicators of
:mod:`ringlet.comm.world`, whose groups all ranks must make, are no help here, but they can make the store: where
neither torchrun nor the user has said how ranks meet, those that Ringlet or mpiexec has started meet as Ringlet does.
"""

# PyTorch exports these names without saying so to type checkers.
# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any, final
from urllib.parse import parse_qs, urlparse

from torch.distributed import PrefixStore, Store

from ringlet.comm import environments, world
from ringlet.comm.contract import Communicator
from ringlet.comm.environments import stay_on_this_machine
from ringlet.comm.layered import LayeredCommunicator, cut_machines, ranks_per_node_from_environment
from ringlet.comm.memory import Segment, machine_id, share_segment
from ringlet.comm.node import NodeCommunicator, segment_bytes
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.torch_distributed import join_store, open_store
from ringlet.errors import CommunicationError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05
_meetings: Counter[str] = Counter()
"""How often this process has made each group: keys of a store outlive the groups that were made by them."""


def own_place(store: Store, name: str, ranks: Sequence[int]) -> Store:
    """A part of ``store`` in which no earlier group of this name and these ranks has left anything.

    Other ranks may have made other groups of this name meanwhile.
    """
    group = f"{name}/{'-'.join(map(str, ranks))}"
    _meetings[group] += 1
    return PrefixStore(f"ringlet/{group}/{_meetings[group]}", store)


def meet(store: Store, rank: int, size: int, patience: timedelta, what: str) -> Store:
    """A part of ``store`` that only ranks which are here now know; all of the ``size`` ranks must call.

    A job that torchrun starts again may meet in the store of the attempt before it, whose ranks have left their keys
    there, and what one of them has said would be taken for an answer. So rank 0 says a new word, the others answer to
    it by words of their own, and rank 0 tells which answers it got. A rank that finds its own word among them uses the
    part of the store under that of rank 0; one that does not has read what an earlier rank 0 left, and looks again.
    """
    if size == 1:
        return store
    meeting = Meeting(store, rank, size, patience, what, threading.Event())
    return PrefixStore(meeting.invite() if rank == 0 else meeting.answer(), store)


def connect_group(
    store: Store,
    rank: int,
    size: int,
    patience: timedelta,
    what: str,
    *,
    by_mpi: bool = True,
    stop: threading.Event | None = None,
) -> Communicator:
    """The communicator of ``size`` ranks that meet in ``store``; all of them must call, and no one else.

    ``what`` is to be connected, for messages. MPI can make only one group at a time: threads that may come at the same
    time must do without (``by_mpi``). ``stop`` ends the waiting for ranks that have not come.
    """
    if size == 1:
        return SingleCommunicator()
    meeting = Meeting(store, rank, size, patience, what, stop or threading.Event())
    ranks_per_node = ranks_per_node_from_environment()
    machines = meeting.gather(f"{socket.gethostname()} {machine_id()}".encode())
    if len(set(machines)) == 1:
        stay_on_this_machine(os.environ)
    if ranks_per_node is None and len(set(machines)) == 1:
        communicator = _join_node(meeting)
        if communicator is not None:
            return communicator
    numbers = meeting.gather(str(_mpi_rank() if by_mpi else None).encode())
    if b"None" not in numbers and len(set(numbers)) == size:
        from ringlet.comm.mpi import MpiWire

        wire: Any = MpiWire(_mpi().COMM_WORLD).subset([int(number) for number in numbers])
    else:
        from ringlet.comm.torch_distributed import TorchWire

        # By a connection of its own: Gloo waits for other ranks in the store, and no one else can ask there meanwhile.
        wire = TorchWire(store.clone(), "wire", rank, size, "gloo")
    return LayeredCommunicator(wire, cut_machines(wire.machines(), ranks_per_node), startable=False)


@final
class Keys:
    """Keys of a store, waited for by asking again and again.

    A store that waits itself lets no other thread of this process ask meanwhile.
    """

    def __init__(self, store: Store, stop: threading.Event | None = None) -> None:
        """``stop`` ends all waiting."""
        self._store: Any = store
        self._stop = stop or threading.Event()

    def set(self, key: str, data: bytes) -> None:
        """Tell all ranks."""
        self._store.set(key, data)

    def get(self, key: str) -> bytes:
        """What a rank has told; it must be there."""
        data: bytes = self._store.get(key)
        return data

    def has(self, key: str) -> bool:
        """Whether a rank has told it."""
        return bool(self._store.check([key]))

    def delete(self, key: str) -> None:
        """Forget it."""
        self._store.delete_key(key)

    def wait(self, key: str, deadline: float) -> bool:
        """Whether the key is there by ``deadline`` (of :func:`time.monotonic`), or before all waiting is ended."""
        pause = _FIRST_PAUSE
        while not self.has(key):
            left = deadline - monotonic()
            if left <= 0 or self._stop.wait(min(pause, left)):
                return False
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True


@final
class Meeting:
    """What ranks tell each other before they have a communicator, topic by topic."""

    def __init__(
        self, store: Store, rank: int, size: int, patience: timedelta, what: str, stop: threading.Event
    ) -> None:
        self.rank = rank
        self.size = size
        self._keys = Keys(store, stop)
        self._patience = patience.total_seconds()
        self._what = what
        self._stop = stop
        self._topic = 0

    def invite(self) -> str:
        """Rank 0: a new word, to which all others have answered."""
        word = secrets.token_hex(8)
        self._keys.set("word", word.encode())
        answers = [self._read(f"{word}/{rank}", rank) for rank in range(1, self.size)]
        self._keys.set(f"{word}/met", b" ".join(answers))
        return word

    def answer(self) -> str:
        """Other ranks: the word of the rank 0 that has heard this rank's answer."""
        own, answered, deadline, pause = secrets.token_hex(8).encode(), "", monotonic() + self._patience, _FIRST_PAUSE
        while True:
            word = self._keys.get("word").decode() if self._keys.has("word") else ""
            if word and word != answered:
                self._keys.set(f"{word}/{self.rank}", own)
                answered = word
            if word and self._keys.has(f"{word}/met") and own in self._keys.get(f"{word}/met").split():
                return word
            if monotonic() > deadline or self._stop.wait(pause):
                raise self._missing(0)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of all ranks."""
        keys = self._next_keys(range(self.size))
        self._keys.set(keys[self.rank], data)
        return [self._read(key, rank) for rank, key in enumerate(keys)]

    def broadcast(self, data: bytes) -> bytes:
        """The bytes of rank 0."""
        key = self._next_keys([0])[0]
        if self.rank == 0:
            self._keys.set(key, data)
            return data
        return self._read(key, 0)

    def agree(self, ready: bool) -> bool:
        """Whether all ranks are ready."""
        return all(answer == b"yes" for answer in self.gather(b"yes" if ready else b"no"))

    def _next_keys(self, ranks: Any) -> list[str]:
        self._topic += 1
        return [f"{self._topic}/{rank}" for rank in ranks]

    def _read(self, key: str, rank: int) -> bytes:
        if self._keys.wait(key, monotonic() + self._patience):
            return self._keys.get(key)
        raise self._missing(rank)

    def _missing(self, rank: int) -> CommunicationError:
        if self._stop.is_set():
            return CommunicationError(f"{self._what}: the process group was destroyed before rank {rank} came")
        return CommunicationError(
            f"{self._what}: rank {self.rank} has waited {self._patience:g} s for rank {rank} of {self.size}, "
            "which never came. Every rank of the group must take part in making it"
        )


def meet_by_launcher(url: str, timeout: timedelta) -> Iterator[tuple[Store, int, int]]:
    """What ``torch.distributed.rendezvous`` gives, for ranks that Ringlet, mpiexec or srun has started."""
    communicator = world.communicator()
    rank, size = communicator.rank, communicator.size
    asked = {name: int(values[0]) for name, values in parse_qs(urlparse(url).query).items()}
    if asked.get("rank", rank) != rank or asked.get("world_size", size) != size:
        raise CommunicationError(
            f"init_process_group was called with {asked}, but the launcher has started this process as rank {rank} of "
            f"{size}. Leave rank and world_size out, or set MASTER_ADDR and MASTER_PORT for ranks of your own"
        )
    store, address = None, ""
    only_here = communicator.local_size == size
    if only_here:
        stay_on_this_machine(os.environ)
    if rank == 0:
        store, address = open_store(socket.gethostname(), only_here=only_here, timeout=timeout, size=size)
    address = communicator.broadcast_bytes(address.encode() if rank == 0 else None).decode()
    if store is None:
        store = join_store(address, timeout=timeout, size=size)
    place = environments.World("", rank, size, communicator.local_rank, communicator.local_size)
    environments.tell_as_torchrun(place)
    yield store, rank, size
    raise CommunicationError("the ranks of this job meet only once: start the job again with the new number of ranks")


def _join_node(meeting: Meeting) -> Communicator | None:
    """Over shared memory; None where it cannot be shared."""
    role: Any = "maker" if meeting.rank == 0 else "member"
    try:
        segment: Segment | None = share_segment(segment_bytes(meeting.size), role, meeting.broadcast, meeting.agree)
    except CommunicationError:
        return None
    assert segment is not None
    return NodeCommunicator(segment, meeting.rank, meeting.size)


def _mpi_rank() -> int | None:
    """This process's rank in MPI's world, if there are several and threads may use MPI; None otherwise."""
    mpi = _mpi()
    usable = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()
    if not usable or mpi.Query_thread() != mpi.THREAD_MULTIPLE or mpi.COMM_WORLD.Get_size() == 1:
        return None
    return int(mpi.COMM_WORLD.Get_rank())


def _mpi() -> Any:
    """mpi4py's module if the program has loaded it: loading it here would initialise MPI."""
    return sys.modules.get("mpi4py.MPI")
