"""Freed memory stays with the process.

Frameworks allocate activations and gradients again in every training step. The C library (glibc) returns large pieces
to the system as soon as they are freed, and the system clears every page again when the next step touches it: that was
a quarter of a step of a small network on PyTorch. So the allocator is told to keep what it has. The most memory that a
process ever had was the same with and without it, where that was measured (simplecnn and vgg16_bn).
"""

from __future__ import annotations

import ctypes
import os

VARIABLE = "RINGLET_KEEP_MEMORY"
"""``off`` leaves the allocator as it is."""
FREE_BYTES = 1 << 30
"""So much free memory may lie at the end of the heap before some of it is returned."""
LARGEST_PIECE_BYTES = 32 << 20
"""Larger pieces are returned one by one as ever: the most that glibc accepts."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_OFF = ("off", "0", "no", "false")
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> bool:
    """Tell the allocator, and whether it was told: not if the user has chosen by variables, or there is no glibc."""
    if os.environ.get(VARIABLE, "").lower() in _OFF or _is_chosen_by_user():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, FREE_BYTES) and mallopt(_MMAP_THRESHOLD, LARGEST_PIECE_BYTES))


def _is_chosen_by_user() -> bool:
    return any(name in os.environ for name in _OWN_SETTINGS) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
