"""Where things lie in the memory of a channel, as ``native/channel.hpp`` has it too.

A header whose first word is zero, or one more than the rank that ended everything; one control block per rank; then two
data slots per rank. New memory (all zero) is a channel that no one has used. A :class:`Watch` reads there whether a
rank that is waited for can still come.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.channel.fence import memory_fence
from ringlet.errors import CommunicationError, RankFailedError

Bytes = NDArray[np.uint8]

HEADER_BYTES = 128
PAGE_BYTES = 4096
MAX_TEXT = 128
"""Bytes of a call's description that others can read."""
SLOT_BYTES = 1 << 19
"""A chunk takes much longer than a round, also where ranks must share processors, and stays in the caches."""

CONTROL = np.dtype(
    {
        "names": [
            "sequence", "sleepers", "digest", "value", "text_length", "process", "closed", "namespace", "text",
        ],
        "formats": ["u4", "u4", ("u8", 2), ("i8", 2), ("u2", 2), "u4", "u4", "u8", ("u1", (2, MAX_TEXT))],
        "offsets": [0, 4, 8, 24, 40, 44, 48, 56, 64],
        "itemsize": 384,
    }
)  # fmt: skip
"""A rank's control block. Only its owner writes it, but for ``sleepers``: how many sleep on ``sequence``."""


def slot_bytes(size: int) -> int:
    """The bytes of a slot: room for 64 elements for each of ``size`` ranks, at least."""
    return max(SLOT_BYTES, 512 * size)


def channel_bytes(size: int) -> int:
    """The bytes of a channel between ``size`` ranks."""
    return slots_offset(size) + 2 * size * slot_bytes(size)


def slots_offset(size: int) -> int:
    """Where the slots begin: those of rank 0, of rank 1, …"""
    return -(-(HEADER_BYTES + size * CONTROL.itemsize) // PAGE_BYTES) * PAGE_BYTES


def control_blocks(memory: Bytes, size: int) -> NDArray[Any]:
    """The control blocks of all ranks, a view."""
    return memory[HEADER_BYTES : HEADER_BYTES + size * CONTROL.itemsize].view(CONTROL)


def failure_word(memory: Bytes) -> NDArray[np.uint32]:
    """Zero, or one more than the rank that ended everything; a view."""
    return memory[:4].view(np.uint32)


def sign_in(memory: Bytes, rank: int) -> None:
    """Say which process this rank is, so that others can tell whether it is still there."""
    own = control_blocks(memory, rank + 1)[rank]
    own["namespace"] = process_namespace()
    own["process"] = os.getpid()


def sign_out(block: Any) -> None:
    """Say in the rank's control ``block`` that it will not arrive again; a rank that reads so sees its last arrival."""
    memory_fence()()
    block["closed"] = 1


def process_namespace() -> int:
    """Within one namespace process numbers mean the same; 0 if unknown."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def signature(text: str) -> bytes:
    """What the ranks compare before they exchange anything: 8 bytes that stand for the whole text, then the text."""
    encoded = text.encode()
    return blake2b(encoded, digest_size=8).digest() + encoded[:MAX_TEXT]


@final
class Watch:
    """What a rank calls now and then while it waits for another.

    Called with the rank that is waited for and the rank that ended everything (or -1); raises if waiting is vain. A
    peer that arrives, and closes or ends before it is looked at, has done its part: its number is read again then.
    """

    def __init__(self, memory: Bytes, rank: int, size: int) -> None:
        self._blocks = control_blocks(memory, size)
        self._failure = failure_word(memory)
        self._order_memory = memory_fence()
        self._rank = rank
        self._size = size

    def __call__(self, peer: int, failed: int) -> None:
        """Raise ``RankFailedError`` if a rank is gone, ``CommunicationError`` if the peer has closed its end."""
        if failed >= 0:
            raise RankFailedError(
                f"rank {failed} of {self._size} on this machine has failed or was interrupted; rank {self._rank} "
                "cannot go on without it. The first report of a failed rank tells why"
            )
        block = self._blocks[peer]
        if block["closed"] and not self._has_arrived(peer):
            raise CommunicationError(
                f"rank {self._rank} waits in a collective for rank {peer} of {self._size} on this machine, which has "
                "closed its communicator: every rank must call the same collectives before any rank closes"
            )
        process = int(block["process"])
        if process and block["namespace"] == self._blocks[self._rank]["namespace"] and not is_running(process):
            if self._has_arrived(peer):
                return
            if not self._failure[0]:
                self._failure[0] = peer + 1
            raise RankFailedError(
                f"rank {peer} of {self._size} on this machine (process {process}) has ended while rank {self._rank} "
                "waited for it in a collective: every rank must call the same collectives until the end"
            )

    def _has_arrived(self, peer: int) -> bool:
        """Whether the peer is as far as this rank, which has arrived where it waits; what was read before is older."""
        self._order_memory()
        ahead = int(self._blocks[peer]["sequence"]) - int(self._blocks[self._rank]["sequence"])
        return ahead & 0xFFFFFFFF < 1 << 31


def is_running(process: int) -> bool:
    """Whether a process of this machine exists and is more than an exit code that waits to be read."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return not state or state[0] not in "ZX"
    return True
