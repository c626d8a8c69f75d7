"""Where parameters and running statistics of a machine's ranks lie, and how new ones reach all of them.

Every rank updates its ranges. A *shared copy* lies once per machine: what a rank has written, the others read. That
saves memory and copying, and is right for large networks. A small network stays in the caches of the cores, and there
it is slow: a line that several cores hold is taken away from all of them before one of them may write it, which takes
40 to 100 ns each on some machines. So ranks with a small network have *own copies*, and new values travel through the
rows of gradients: the owner of a range has just read it in the row of every other rank, now it writes the new values
to the same place, and after a meeting each rank reads its own row. A line moves to and fro between two cores, and is
never held by both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import DTypeLike

from ringlet.comm.contract import Communicator
from ringlet.engines.contract import Floats
from ringlet.kernels.contract import Kernels
from ringlet.strategies.ownership import Range
from ringlet.timeline import Timeline

OWN_COPY_BYTES = 16 << 20
"""Up to so many bytes of parameters and running statistics each rank has its own copy of them."""

_PAGE_BYTES, _STAGGER_BYTES = 4096, 640

_COPY = [0]
"""A tree of one value: a plain loop over it, where memcpy may use instructions that are slow between cores."""


def has_own_copies(num_bytes: int, local_sizes: Sequence[int]) -> bool:
    """Whether ranks have own copies of ``num_bytes``, given the number of ranks of each machine: the same on all."""
    return max(local_sizes) > 1 and num_bytes <= OWN_COPY_BYTES


class Copies(ABC):
    """``values`` of this rank: parameters, then running statistics. Every rank must call every method."""

    def __init__(self, comm: Communicator, values: Floats) -> None:
        self._comm, self.values = comm, values

    def begin(self) -> None:
        """Take the values of rank 0, on all ranks."""
        self._comm.barrier()
        if self._comm.local_rank == 0:
            self._comm.cross.broadcast(self.values, out=self.values)
        self._begin_on_machine()

    @abstractmethod
    def _begin_on_machine(self) -> None:
        """Take the values of the machine's first rank."""

    @abstractmethod
    def take(self, values: Floats) -> None:
        """Take over ``values``, which all ranks of the machine pass; they may change when this returns."""

    @abstractmethod
    def spread(self, timeline: Timeline) -> None:
        """Each rank has updated its ranges; when this returns, ``values`` are new on this rank."""


@final
class SharedCopy(Copies):
    """One copy per machine: there is nothing to do but to wait."""

    def __init__(self, comm: Communicator, num_values: int, dtype: DTypeLike) -> None:
        super().__init__(comm, comm.shared_array(num_values, dtype))

    def _begin_on_machine(self) -> None:
        self._comm.barrier()

    def take(self, values: Floats) -> None:
        """The machine's first rank copies."""
        if self._comm.local_rank == 0:
            self.values[:] = values
        self._comm.barrier()

    def spread(self, timeline: Timeline) -> None:
        """Wait until all have finished."""
        timeline.mark("wait")
        self._comm.local.barrier()


@final
class OwnCopies(Copies):
    """A copy per rank; ``rows`` are those of the machine's ranks, of which this one updates the ranges ``owned``."""

    def __init__(self, comm: Communicator, rows: Sequence[Floats], owned: Sequence[Range], kernels: Kernels) -> None:
        own = rows[comm.local_rank]
        super().__init__(comm, staggered_zeros(own.size, own.dtype, 1))
        self._kernels = kernels
        others = [row for rank, row in enumerate(rows) if rank != comm.local_rank]
        self._outgoing = [(self.values[part.slice()], row[part.slice()]) for row in others for part in owned]
        self._incoming = [
            (own[part.slice()], self.values[part.slice()]) for part in ranges_between(owned, own.size) if others
        ]

    def _begin_on_machine(self) -> None:
        self._comm.local.broadcast(self.values, out=self.values)

    def take(self, values: Floats) -> None:
        """Each rank copies."""
        self.values[:] = values
        self._comm.barrier()

    def spread(self, timeline: Timeline) -> None:
        """Write own ranges into the rows of all others, meet, and read the ranges of all others in the own row."""
        for source, target in self._outgoing:
            self._kernels.add_tree([source], _COPY, target)
        timeline.mark("wait")
        self._comm.local.barrier()
        timeline.mark("update")
        for source, target in self._incoming:
            self._kernels.add_tree([source], _COPY, target)


def whole_pages(count: int, dtype: DTypeLike) -> int:
    """``count`` elements rounded up to whole pages: no line, then, belongs to two rows that follow each other."""
    width = _PAGE_BYTES // np.dtype(dtype).itemsize
    return -(-count // width) * width


def staggered_zeros(count: int, dtype: DTypeLike, place: int) -> Floats:
    """Private memory for the array at ``place`` among those that a loop walks at once (0: shared memory).

    It begins with a cache line, so that no border cuts a vector, and at another distance from its page's beginning than
    the others: a processor that compares only that part of addresses takes a read for one of what was just written.
    """
    width = np.dtype(dtype).itemsize
    memory = np.zeros(count * width + _PAGE_BYTES, np.uint8)
    start = (place * _STAGGER_BYTES - memory.ctypes.data) % _PAGE_BYTES
    values: Floats = memory[start : start + count * width].view(dtype)
    return values


def ranges_between(ranges: Sequence[Range], size: int) -> list[Range]:
    """All of ``size`` elements that are not in ``ranges``, which lie in order."""
    borders = [0, *(border for part in ranges for border in part), size]
    gaps = (Range(start, stop) for start, stop in list(pairwise(borders))[::2])
    return [gap for gap in gaps if gap.size > 0]
