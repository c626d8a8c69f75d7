"""Counter-based random numbers: a value is a pure function of its keys, never of what was drawn before.

The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
It is a bijection on 64-bit words, so distinct counters of one stream give distinct words.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def stream(*keys: int) -> int:
    """Fold any number of integer keys (order matters) into one 64-bit stream number."""
    state = 0
    for key in keys:
        state = _mix_int((state + _GOLDEN + _mix_int((key + _GOLDEN) & _MASK)) & _MASK)
    return state


def words(stream_key: int, counters: NDArray[np.int64] | Words) -> Words:
    """One 64-bit word per counter; distinct counters give distinct words."""
    state = counters.astype(np.uint64)
    state *= np.uint64(_GOLDEN)
    state += np.uint64(stream_key & _MASK)
    return _mix_in_place(state)


def uniform(stream_key: int, counters: NDArray[np.int64] | Words) -> NDArray[np.float64]:
    """One number in [0, 1) per counter."""
    return np.asarray((words(stream_key, counters) >> np.uint64(11)) * (1.0 / (1 << 53)), dtype=np.float64)


def integers(stream_key: int, counters: NDArray[np.int64] | Words, limit: int) -> NDArray[np.int64]:
    """One integer in [0, limit) per counter, for limits far below 2**53."""
    return (uniform(stream_key, counters) * limit).astype(np.int64)


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _mix_in_place(state: Words) -> Words:
    state ^= state >> np.uint64(30)
    state *= np.uint64(_FIRST)
    state ^= state >> np.uint64(27)
    state *= np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    return state
