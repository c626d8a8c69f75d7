"""What carries bytes between ranks that share no memory: the little that MPI and torch.distributed must each do.

Everything else (dtypes, operations, shapes, checks) is said once, in :mod:`ringlet.comm.wired`. All arrays here are
contiguous; every rank of the wire must call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Array, Op
from ringlet.comm.window import Window

Bytes = NDArray[np.uint8]


class Wire(ABC):
    """A group of ranks that can send each other bytes."""

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
