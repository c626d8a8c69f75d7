"""What a channel offers: collectives over raw memory, for callers that have checked their arguments.

Every collective begins with a round in which the ranks compare signatures (:func:`layout.signature`). It returns -1,
or, on every rank, the lowest rank whose signature differs from that of rank 0; then nothing has been exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Channel(Protocol):
    """One rank's end. Arrays are contiguous; sizes are in bytes, counts in elements; one thread at a time."""

    def barrier(self, signature: bytes) -> int:
        """Return when all ranks have come here."""

    def exchange(self, signature: bytes, value: int) -> list[int] | int:
        """A barrier that tells every rank the ``value`` of each."""

    def allreduce(self, signature: bytes, element: int, how: int, array: NDArray[Any], out: NDArray[Any]) -> int:
        """Combine by numbers of :mod:`elements`, in the order of ranks; ``out`` may be ``array``."""

    def broadcast(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], root: int) -> int:
        """``array`` of ``root`` into everybody's ``out``, which may be ``array``."""

    def allgather(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], sizes: Sequence[int]) -> int:
        """The arrays of all ranks, of ``sizes``, one after the other."""

    def reduce_scatter(
        self, signature: bytes, element: int, how: int, array: NDArray[Any], out: NDArray[Any], counts: Sequence[int]
    ) -> int:
        """Combine; rank r gets the ``counts[r]`` elements that follow those of the ranks before it."""

    def alltoall(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], sizes: Sequence[int]) -> int:
        """``sizes[s * size + r]`` bytes go from rank s to rank r; parts lie in the order of ranks."""

    def text(self, rank: int) -> bytes:
        """What ``rank`` called, as it stood in the last signature."""

    def fail(self, culprit: int) -> None:
        """End all waiting, on all ranks and for good, because of rank ``culprit``."""

    def failed(self) -> int:
        """The rank that ended everything, or -1."""
