"""Who reads what, when: the order of samples and each rank's share of it, as pure functions.

Every rank computes the same order by itself, so no rank has to tell another, and a resumed run continues with the same
samples. The bits do not depend on any library's random generator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing
from ringlet.errors import UsageError

_ORDER_STREAM = 1
_SPLIT_STREAM = 2


def bounds(n: int, rank: int, size: int) -> tuple[int, int]:
    """Start and end of the contiguous share of ``rank``; the first ``n % size`` ranks get one item more."""
    if n < 0 or size < 1 or not 0 <= rank < size:
        raise UsageError(f"no share of {n} items for rank {rank} of {size}: expected n >= 0 and 0 <= rank < size")
    quotient, remainder = divmod(n, size)
    start = rank * quotient + min(rank, remainder)
    return start, start + quotient + (1 if rank < remainder else 0)


def order(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The permutation of ``range(n)`` in which epoch ``epoch`` reads its samples."""
    return _permutation(n, hashing.stream(_ORDER_STREAM, seed, epoch))


def split_indices(n: int, seed: int, num_held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut ``range(n)`` into (kept, held out), chosen by ``seed``; both sorted so that files are read forwards."""
    shuffled = _permutation(n, hashing.stream(_SPLIT_STREAM, seed))
    return np.sort(shuffled[num_held_out:]), np.sort(shuffled[:num_held_out])


def _permutation(n: int, stream_key: int) -> NDArray[np.int64]:
    # The keys are distinct (the mixer is a bijection), so every correct sort gives the same permutation.
    return np.argsort(hashing.words(stream_key, np.arange(n, dtype=np.uint64))).astype(np.int64, copy=False)
