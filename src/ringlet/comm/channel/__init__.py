"""Collectives between the processes of one machine through memory that all of them map, twice with one interface.

``ringlet.kernels._native.Channel`` (C++) and :class:`ringlet.comm.channel.reference.Channel` (NumPy) follow one
protocol over one layout, so that ranks may even mix them. :func:`open_channel` picks one as kernels are picked.
"""

from __future__ import annotations

import os

from ringlet import kernels
from ringlet.comm.channel import layout
from ringlet.comm.channel.contract import Bytes, Channel
from ringlet.comm.channel.watch import Watch

SPINS = 1000
"""How often a rank looks for the others before it gives up the processor, where each has one of its own."""
YIELDS = 1000
"""How often a rank then lets others run before it sleeps."""


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
