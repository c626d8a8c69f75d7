"""Collectives between the processes of one machine through memory that all of them map, twice with one interface.

``ringlet.kernels._native.Channel`` (C++) and :class:`ringlet.comm.channel.reference.Channel` (NumPy) follow one
protocol over one layout, so that ranks may even mix them. :func:`open_channel` picks one as kernels are picked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from ringlet import kernels
from ringlet.comm.channel import layout
from ringlet.comm.channel.layout import Bytes, Watch

SPINS = 1000
"""How often a rank looks for the others before it gives up the processor, where each has one of its own."""
YIELDS = 1000
"""How often a rank then lets others run before it sleeps."""


class Channel(Protocol):
    """One rank's end: collectives over raw memory, for callers that have checked their arguments.

    Arrays are contiguous; sizes are in bytes, counts in elements; one thread at a time. Every collective begins with a
    round in which the ranks compare signatures (:func:`layout.signature`). It returns -1, or, on every rank, the lowest
    rank whose signature differs from that of rank 0; then nothing has been exchanged.
    """

    def barrier(self, signature: bytes) -> int:
        """Return when all ranks have come here."""

    def exchange(self, signature: bytes, value: int) -> list[int] | int:
        """A barrier that tells every rank the ``value`` of each."""

    def allreduce(self, signature: bytes, element: int, how: int, array: NDArray[Any], out: NDArray[Any]) -> int:
        """Combine by numbers of :mod:`ringlet.comm.arrays`, in the order of ranks; ``out`` may be ``array``."""

    def broadcast(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], root: int) -> int:
        """``array`` of ``root`` into everyone's ``out``, which may be ``array``."""

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


def open_channel(memory: Bytes, rank: int, size: int) -> Channel:
    """This rank's end of the channel in ``memory`` (``layout.channel_bytes``); every rank opens it once."""
    layout.sign_in(memory, rank)
    spins = SPINS if size <= num_usable_cores() else 0
    watch = Watch(memory, rank, size)
    if kernels.load().name == "compiled":
        from ringlet.kernels import _native

        channel: Channel = _native.Channel(memory, rank, size, layout.slot_bytes(size), spins, YIELDS, watch)
        return channel
    from ringlet.comm.channel.reference import Channel as ReferenceChannel

    return ReferenceChannel(memory, rank, size, layout.slot_bytes(size), spins, YIELDS, watch)


def num_usable_cores() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
