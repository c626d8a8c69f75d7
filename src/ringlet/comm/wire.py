"""Ranks that share no memory: a wire carries bytes between them.

It is the little that MPI and torch.distributed must each do. Everything else (dtypes, operations, shapes, checks) is
described once, by each collective.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.collective import Array, Background, Collective, Op, Result
from ringlet.comm.contract import Communicator, Handle
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.window import Window
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

Bytes = NDArray[np.uint8]
NO_THREADS = (
    "collectives cannot be started here: this MPI does not let several threads communicate (MPI_THREAD_MULTIPLE). "
    "Call them instead, or use an MPI that was built with thread support"
)


class Wire(ABC):
    """A group of ranks that can send each other bytes. Arrays are contiguous; every rank of the wire must call."""

    name: str
    """``mpi`` or ``torch``."""
    rank: int
    size: int

    @abstractmethod
    def reduces(self, dtype: np.dtype[Any], op: Op) -> bool:
        """Whether :meth:`allreduce` can do this, exactly as NumPy would and with the same bits on all ranks."""

    @abstractmethod
    def allreduce(self, array: Array, op: Op) -> None:
        """Combine the flat ``array`` over all ranks, in place; never an average."""

    @abstractmethod
    def broadcast(self, data: Bytes, root: int) -> None:
        """Overwrite ``data`` by that of ``root``."""

    @abstractmethod
    def allgather(self, data: Bytes, received: Bytes, counts: Sequence[int]) -> None:
        """Collect the bytes of all ranks, ``counts[r]`` of rank r, one after the other in ``received``."""

    @abstractmethod
    def alltoall(self, data: Bytes, counts: Sequence[int], received: Bytes, received_counts: Sequence[int]) -> None:
        """Send the next ``counts[r]`` bytes of ``data`` to each rank r; collect ``received_counts[r]`` of each."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have come here."""

    @abstractmethod
    def machines(self) -> list[int]:
        """For every rank a number of the machine it runs on: equal numbers mean that memory may be shared."""

    @abstractmethod
    def subset(self, ranks: Sequence[int]) -> Wire:
        """A wire of some ranks, in the given order; only these must call. Independent of this one."""

    @abstractmethod
    def window(self, num_bytes: int) -> Window:
        """Memory of rank 0 that all ranks read and write by themselves; ``CommunicationError`` where there is none."""

    @abstractmethod
    def can_duplicate(self) -> bool:
        """Whether a second wire may be used by another thread at the same time."""

    @abstractmethod
    def abort(self, exit_code: int) -> None:
        """End all ranks of the job at once, this one included."""


@final
class WiredCommunicator(Communicator):
    """Ranks that share no memory: each is a machine of its own."""

    def __init__(self, wire: Wire, *, spare: Wire | None = None) -> None:
        """``spare`` is a second wire of the same ranks; without it collectives cannot be started."""
        self.name = wire.name
        self.rank = wire.rank
        self.size = wire.size
        self.machines = [[rank] for rank in range(wire.size)]
        self.wire = wire
        self._local = SingleCommunicator()
        self._background = None if spare is None else Background(lambda: WiredCommunicator(spare))
        self._closed = False
        self._owner = Owner()

    @property
    def local(self) -> Communicator:
        """This rank alone."""
        return self._local

    @property
    def cross(self) -> Communicator:
        """All ranks."""
        return self

    def run(self, collective: Collective[Result], *arguments: Any) -> Result:
        """By what it does over a wire."""
        self._check_open(collective.name)
        function = collective.wired or collective.composed
        assert function is not None
        return function(self, *collective.checked(self.size, arguments))

    def begin(self, collective: Collective[Any], *arguments: Any) -> Handle:
        """In a thread, over the spare wire."""
        self._check_open(collective.name)
        if self._background is None:
            raise CommunicationError(NO_THREADS)
        return self._background.submit(collective, *arguments)

    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of this rank alone."""
        self._check_open("shared_array")
        return self._local.shared_array(shape, dtype)

    def window(self, num_bytes: int) -> Window:
        """One-sided memory, if the wire has it."""
        self._check_open("window")
        return self._local.window(num_bytes) if self.size == 1 else self.wire.window(num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """A wire of these ranks."""
        self._check_open("group")
        chosen = arrays.check_ranks(ranks, self.size)
        if self.rank not in chosen:
            return None
        wire = self.wire.subset(chosen)
        return WiredCommunicator(wire, spare=self.wire.subset(chosen) if self._background else None)

    def abort(self, exit_code: int) -> None:
        """End the job."""
        if not self._owner.is_here:
            self._local.abort(exit_code)
        self.wire.abort(exit_code)

    def close(self) -> None:
        """Finish what was started; the wire itself stays until the process ends, as others may still use it."""
        self._closed = True
        if self._background is not None and self._owner.is_here:
            self._background.close()

    def _check_open(self, collective: str) -> None:
        if self._closed:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")
        self._owner.check(collective, self.rank)
