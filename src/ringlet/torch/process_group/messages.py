"""Messages between two ranks of a process group: ``send``, ``recv``, tags, any source.

A *link* carries the messages of one rank to one other, in their order. It is a communicator of these two, made when
the first message is sent and first waited for; each message is two broadcasts, a header and the bytes. The sender has
a :class:`Lane` for every link; the receiver a thread that reads as long as someone waits for what may come. A message
that no one has asked for yet, because of its tag, is kept until someone does.
"""

# PyTorch exports these names without saying so to type checkers.
# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import final
from zlib import crc32

import numpy as np
from torch import Tensor
from torch.distributed import PrefixStore, Store

from ringlet.comm.arrays import as_bytes
from ringlet.comm.contract import Array, Communicator
from ringlet.errors import CommunicationError
from ringlet.torch.process_group.meeting import connect_group
from ringlet.torch.process_group.profiling import Record
from ringlet.torch.process_group.tensors import InOut, borrow
from ringlet.torch.process_group.work import SECONDS_TO_FINISH, SECONDS_TO_LEAVE, Lane, RingletWork, leave

_HEADER_LENGTH = 3


@dataclass(frozen=True)
class _Message:
    """What has come from ``source``."""

    source: int
    tag: int
    kind: int
    """Stands for the dtype."""
    data: Array


@dataclass(frozen=True)
class _Receive:
    """Someone who waits for a message; ``source`` None is any."""

    source: int | None
    tag: int
    target: InOut
    work: RingletWork

    def accepts(self, source: int, tag: int) -> bool:
        return self.source in (None, source) and self.tag == tag


@final
class Mailbox:
    """All messages to and from one rank of a group."""

    def __init__(self, store: Store, rank: int, size: int, patience: timedelta) -> None:
        self.patience = patience
        self._store = store
        self._rank = rank
        self._size = size
        self._links: dict[int, Lane] = {}
        self._readers: dict[int, threading.Thread] = {}
        self._incoming: dict[int, Communicator] = {}
        self._failures: dict[int, BaseException] = {}
        self._posted: list[_Receive] = []
        self._kept: list[_Message] = []
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def send(self, tensor: Tensor, target: int, tag: int, record: Record | None = None) -> RingletWork:
        """Send the values of a tensor; done when the receiver has them."""
        self._check_rank(target, "send to")
        values = borrow(tensor).array
        what = f"send to rank {target} with tag {tag}"
        if target == self._rank:
            work = RingletWork(what, record=record)
            self._deliver(_Message(target, tag, _kind(values), values.copy()))
            work.finish([tensor])
            return work

        def job(link: Communicator) -> list[Tensor]:
            link.broadcast(np.array([tag, values.nbytes, _kind(values)], np.int64), 0)
            link.broadcast(as_bytes(values), 0)
            return [tensor]

        return self._link(target).submit(what, job, record=record)

    def receive(self, tensor: Tensor, source: int | None, tag: int, record: Record | None = None) -> RingletWork:
        """Take the next message with this tag from rank ``source``, or from any rank."""
        if source is not None:
            self._check_rank(source, "receive from")
        sender = "any rank" if source is None else f"rank {source}"
        work = RingletWork(f"recv from {sender} with tag {tag}", self.patience, record)
        receive = _Receive(source, tag, borrow(tensor), work)
        with self._changed:
            for message in self._kept:
                if receive.accepts(message.source, message.tag):
                    self._kept.remove(message)
                    _hand_over(receive, message)
                    return work
            if source in self._failures:
                work.finish(error=self._failures[source])
                return work
            self._posted.append(receive)
            self._changed.notify_all()
            for sender_rank in range(self._size) if source is None else [source]:
                self._read_from(sender_rank)
        return work

    def close(self, seconds: float = SECONDS_TO_FINISH) -> None:
        """Finish what was sent, if that takes no longer than ``seconds``; let everything that still waits fail."""
        for lane in self._links.values():
            lane.close(seconds)
        with self._changed:
            self._closed.set()
            posted, self._posted = self._posted, []
            self._changed.notify_all()
        for receive in posted:
            receive.work.finish(error=CommunicationError(f"{receive.work.what}: the process group was destroyed"))
        for link in list(self._incoming.values()):
            leave(link)
        for reader in self._readers.values():
            reader.join(SECONDS_TO_LEAVE)

    def _check_rank(self, rank: int, doing: str) -> None:
        if not 0 <= rank < self._size:
            raise CommunicationError(f"cannot {doing} rank {rank}: expected 0 to {self._size - 1}, the group's ranks")

    def _connect(self, sender: int, receiver: int) -> Callable[[threading.Event], Communicator]:
        """A communicator in which the sender is rank 0."""
        place = PrefixStore(f"link/{sender}-{receiver}", self._store)
        rank, what = int(self._rank == receiver), f"messages of rank {sender} to rank {receiver}"
        return lambda stop: connect_group(place, rank, 2, self.patience, what, by_mpi=False, stop=stop)

    def _link(self, target: int) -> Lane:
        with self._changed:
            if target not in self._links:
                name = f"to-{target}"
                self._links[target] = Lane(name, self._connect(self._rank, target), self.patience)
            return self._links[target]

    # -- reading ------------------------------------------------------------------------------------------------------
    def _read_from(self, source: int) -> None:
        if source not in self._readers and source != self._rank:
            thread = threading.Thread(
                target=self._read, args=(source,), name=f"ringlet-messages-of-{source}", daemon=True
            )
            self._readers[source] = thread
            thread.start()

    def _read(self, source: int) -> None:
        """The thread that takes the messages of one rank, while anyone waits for one."""
        try:
            while self._is_wanted(source):
                if source not in self._incoming:
                    self._incoming[source] = self._connect(source, self._rank)(self._closed)
                self._read_message(self._incoming[source], source)
        except BaseException as error:
            self._fail(source, error)
        finally:
            if source in self._incoming:
                self._incoming[source].close()

    def _is_wanted(self, source: int) -> bool:
        """Waits until a message of this rank is wanted; False when the group is closed."""

        def wanted() -> bool:
            return self._closed.is_set() or any(receive.source in (None, source) for receive in self._posted)

        with self._changed:
            self._changed.wait_for(wanted)
            return not self._closed.is_set()

    def _read_message(self, link: Communicator, source: int) -> None:
        tag, num_bytes, kind = link.broadcast(np.zeros(_HEADER_LENGTH, np.int64), 0).tolist()
        receive = self._claim(source, tag)
        if receive is None or not _fits(receive, num_bytes, kind):
            message = _Message(source, tag, kind, link.broadcast(np.empty(num_bytes, np.uint8), 0))
            if receive is None:
                self._deliver(message)
            else:
                _hand_over(receive, message)
            return
        try:
            target = as_bytes(receive.target.array)
            link.broadcast(target, 0, out=target)
        except BaseException as error:
            receive.work.finish(error=error)
            raise
        receive.target.store()
        receive.work.finish([receive.target.tensor], source=source)

    def _claim(self, source: int, tag: int) -> _Receive | None:
        with self._changed:
            for receive in self._posted:
                if receive.accepts(source, tag):
                    self._posted.remove(receive)
                    return receive
        return None

    def _deliver(self, message: _Message) -> None:
        """To the one who waits for it, or to those that are kept."""
        with self._changed:
            receive = self._claim(message.source, message.tag)
            if receive is None:
                self._kept.append(message)
        if receive is not None:
            _hand_over(receive, message)

    def _fail(self, source: int, error: BaseException) -> None:
        """Nothing will come from this rank any more; those who wait for any rank may still get something."""
        with self._changed:
            self._failures[source] = error
            nobody_left = len(self._failures) == self._size - 1
            lost = [r for r in self._posted if r.source == source or (r.source is None and nobody_left)]
            self._posted = [receive for receive in self._posted if receive not in lost]
        for receive in lost:
            receive.work.finish(error=error)


def _kind(values: Array) -> int:
    return crc32(values.dtype.name.encode())


def _fits(receive: _Receive, num_bytes: int, kind: int) -> bool:
    return receive.target.array.nbytes == num_bytes and _kind(receive.target.array) == kind


def _hand_over(receive: _Receive, message: _Message) -> None:
    """Values of a message that lies in memory of its own."""
    array = receive.target.array
    if not _fits(receive, message.data.nbytes, message.kind):
        dtype = "the same" if message.kind == _kind(array) else "another"
        error = CommunicationError(
            f"{receive.work.what}: rank {message.source} has sent {message.data.nbytes} bytes of {dtype} dtype, but "
            f"the tensor has {array.nbytes} bytes of {array.dtype.name}: both sides must pass the same dtype and size"
        )
        receive.work.finish(error=error)
        return
    as_bytes(array)[:] = as_bytes(message.data)
    receive.target.store()
    receive.work.finish([receive.target.tensor], source=message.source)
