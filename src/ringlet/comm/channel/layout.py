"""Where things lie in the memory of a channel, as ``native/channel.hpp`` has it too.

A header whose first word is zero, or one more than the rank that ended everything; one control block per rank; then two
data slots per rank. New memory (all zero) is a channel that nobody has used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def control_blocks(memory: NDArray[np.uint8], size: int) -> NDArray[Any]:
    """The control blocks of all ranks, a view."""
    return memory[HEADER_BYTES : HEADER_BYTES + size * CONTROL.itemsize].view(CONTROL)


def failure_word(memory: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Zero, or one more than the rank that ended everything; a view."""
    return memory[:4].view(np.uint32)


def sign_in(memory: NDArray[np.uint8], rank: int) -> None:
    """Say which process this rank is, so that others can tell whether it is still there."""
    own = control_blocks(memory, rank + 1)[rank]
    own["namespace"] = process_namespace()
    own["process"] = os.getpid()


def process_namespace() -> int:
    """Within one namespace process numbers mean the same; 0 if unknown."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def signature(text: str) -> bytes:
    """What the ranks compare before they exchange anything: 8 bytes that stand for the whole text, then the text."""
    encoded = text.encode()
    return blake2b(encoded, digest_size=8).digest() + encoded[:MAX_TEXT]
