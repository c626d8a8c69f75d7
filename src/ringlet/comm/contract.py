"""What every communicator offers: collectives over NumPy arrays, on buffers only, never pickle.

Every rank of a communicator must call the same collectives in the same order, with arrays of one dtype and (except
where said) one shape. Results are the same bits on every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm.collective import Array, Collective, Op, Result, find
from ringlet.comm.reductions import ALLREDUCE, REDUCE_SCATTER
from ringlet.comm.transfers import ALLGATHER, ALLTOALL, BARRIER, BROADCAST
from ringlet.comm.window import Window

__all__ = ["Array", "Communicator", "Handle", "Op"]


class Handle(Protocol):
    """A collective that is under way. Arrays that were passed must not be touched until :meth:`wait` has returned."""

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""

    def wait(self) -> Any:
        """The result of the collective; raises what it raised. May be called again."""


class Communicator(ABC):
    """A group of ranks. Subclasses are final; they implement the abstract methods and nothing else of this class.

    The ranks of one machine that share memory are :attr:`local`; the ranks with this rank's ``local_rank``, one per
    machine, are :attr:`cross`. With one machine ``cross.size`` is 1; where memory cannot be shared every rank is a
    machine of its own and ``local.size`` is 1. So code written for ``local`` and ``cross`` serves all cases.
    """

    name: str
    """``single``, ``node``, ``mpi`` or ``torch``."""
    rank: int
    size: int
    machines: Sequence[Sequence[int]]
    """The ranks of every machine, in the order of the machines' lowest ranks."""

    @property
    @abstractmethod
    def local(self) -> Communicator:
        """The ranks of this machine, in the order of their ranks."""

    @property
    @abstractmethod
    def cross(self) -> Communicator:
        """One rank of each machine that has at least ``local_rank + 1`` ranks: those with this ``local_rank``."""

    @property
    def local_rank(self) -> int:
        """This rank's number on its machine."""
        return self.local.rank

    @property
    def local_size(self) -> int:
        """The number of ranks on this machine."""
        return self.local.size

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """The number of ranks on every machine."""
        return tuple(map(len, self.machines))

    @property
    def node(self) -> int:
        """The number of this rank's machine: an index into :attr:`machines`."""
        return next(number for number, ranks in enumerate(self.machines) if self.rank in ranks)

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """``array`` combined over all ranks, element by element, into ``out`` (may be ``array``; default: new)."""
        return self.run(ALLREDUCE, array, op, out)

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """``array`` of rank ``root``; the others pass one of the same shape and dtype. ``out`` as in allreduce."""
        return self.run(BROADCAST, array, root, out)

    def allgather(self, array: Array) -> Array:
        """All ranks' arrays one after the other along axis 0, whose length may differ between ranks."""
        return self.run(ALLGATHER, array)

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """This rank's part of axis 0 (``partition.bounds``) of the combined arrays."""
        return self.run(REDUCE_SCATTER, array, op)

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """Send ``splits[r]`` rows of axis 0 to each rank r (default: equal parts); give what came and its splits."""
        return self.run(ALLTOALL, array, splits)

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.run(BARRIER)

    def call(self, collective: str, *arguments: Any, **options: Any) -> Any:
        """Call a collective by its name: those above and those that other packages have registered."""
        chosen = find(collective)
        return self.run(chosen, *chosen.bind(*arguments, **options))

    def start(self, collective: str, *arguments: Any, **options: Any) -> Handle:
        """Start a collective by its name, ``start("allreduce", array, Op.MAX)``, without waiting for it.

        Collectives that were started run one after the other, in the order of their start, beside those that are
        called. Every rank must start the same ones in the same order.
        """
        chosen = find(collective, "started")
        return self.begin(chosen, *chosen.bind(*arguments, **options))

    @abstractmethod
    def run(self, collective: Collective[Result], *arguments: Any) -> Result:
        """Carry out a collective on arguments as its ``bind`` gives them."""

    @abstractmethod
    def begin(self, collective: Collective[Any], *arguments: Any) -> Handle:
        """The same, without waiting for it; see :meth:`start`."""

    @abstractmethod
    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """One array of zeros, 64-byte aligned, that all ranks of :attr:`local` see; every local rank must call.

        The memory is returned when the last rank has let go of it or has ended, however it ended. Writes are seen by
        the others after the next collective of ``local`` (or of this communicator).
        """

    @abstractmethod
    def window(self, num_bytes: int) -> Window:
        """Memory that all ranks, also those of other machines, read and write without each other; every rank must call.

        Between machines it needs MPI: others raise ``CommunicationError``.
        """

    @abstractmethod
    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """A communicator of some of the ranks, in the given order; None for the others. Every rank must call."""

    @abstractmethod
    def abort(self, exit_code: int) -> None:
        """End all ranks of the job at once, this one included."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; collectives raise from now on. Safe to call twice. Not a collective."""

    def broadcast_bytes(self, data: bytes | None, root: int = 0) -> bytes:
        """The bytes of rank ``root``; the others pass None."""
        length = self.broadcast(np.array([len(data or b"")], np.int64), root)
        buffer = np.zeros(int(length[0]), np.uint8)
        if self.rank == root:
            buffer[:] = np.frombuffer(data or b"", np.uint8)
        return self.broadcast(buffer, root).tobytes()

    def allgather_bytes(self, data: bytes) -> list[bytes]:
        """The bytes of every rank."""
        lengths = self.allgather(np.array([len(data)], np.int64))
        joined = self.allgather(np.frombuffer(data, np.uint8)).tobytes()
        ends = np.cumsum(lengths)
        return [joined[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
