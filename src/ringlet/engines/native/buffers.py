"""Memory of a plan: one aligned arena, laid out once all kernel calls are known.

Calls name symbolic tensors. The life of each of their storages runs from the first to the last call that touches it,
exactly; storages whose lives do not meet share bytes of one :class:`Arena`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.operations.native import Call, Storage, Tensor

ALIGNMENT = 64
"""Bytes: one cache line, one AVX-512 vector."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """First and last call, inclusive, that touches a storage."""

    first: int
    last: int


def lifetimes(calls: Sequence[Call]) -> dict[Storage, Lifetime]:
    """The life of every storage in a sequence of calls."""
    lives: dict[Storage, Lifetime] = {}
    for index, call in enumerate(calls):
        for argument in call.arguments:
            if isinstance(argument, Tensor):
                begun = lives.get(argument.storage)
                lives[argument.storage] = Lifetime(index if begun is None else begun.first, index)
    return lives


def peak_bytes(lives: Mapping[Storage, Lifetime]) -> int:
    """The most bytes that are alive at once: no assignment can need less."""
    changes: dict[int, int] = {}
    for storage, life in lives.items():
        size = _aligned(storage.num_bytes)
        changes[life.first] = changes.get(life.first, 0) + size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - size
    alive = peak = 0
    for index in sorted(changes):
        alive += changes[index]
        peak = max(peak, alive)
    return peak


def assign_offsets(lives: Mapping[Storage, Lifetime]) -> tuple[dict[Storage, int], int]:
    """Give every storage its bytes: largest first, each into the tightest gap between those alive at the same time.

    Returns the offsets and the size of the whole.
    """
    order = sorted(lives, key=lambda storage: (-storage.num_bytes, lives[storage].first))
    first, last, begin, end = (np.zeros(len(order), np.int64) for _ in range(4))
    offsets: dict[Storage, int] = {}
    for count, storage in enumerate(order):
        life, size = lives[storage], _aligned(storage.num_bytes)
        together = np.flatnonzero((first[:count] <= life.last) & (last[:count] >= life.first))
        offset = _tightest_gap(begin[together], end[together], size)
        first[count], last[count], begin[count], end[count] = life.first, life.last, offset, offset + size
        offsets[storage] = offset
    return offsets, int(end.max(initial=0))


def _tightest_gap(begin: NDArray[np.int64], end: NDArray[np.int64], size: int) -> int:
    order = np.argsort(begin, kind="stable")
    best, best_room, reached = -1, 0, 0
    for start, stop in zip(begin[order].tolist(), end[order].tolist(), strict=True):
        room = start - reached
        if room >= size and (best < 0 or room < best_room):
            best, best_room = reached, room
        reached = max(reached, stop)
    return best if best >= 0 else reached


class Arena:
    """One aligned block of memory for all programs of a plan (they never run at the same time)."""

    def __init__(self, num_bytes: int) -> None:
        raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self._bytes = raw[start : start + num_bytes]

    @property
    def num_bytes(self) -> int:
        """Size of the block."""
        return self._bytes.size

    def view(self, tensor: Tensor, offsets: Mapping[Storage, int]) -> NDArray[Any]:
        """The array that ``tensor`` stands for."""
        start = offsets[tensor.storage] + tensor.offset
        return self._bytes[start : start + tensor.num_bytes].view(tensor.dtype).reshape(tensor.shape)

    def arrays(self, arguments: Iterable[object], offsets: Mapping[Storage, int]) -> list[Any]:
        """Arguments of a call with arrays in place of tensors."""
        return [self.view(argument, offsets) if isinstance(argument, Tensor) else argument for argument in arguments]

    @contextmanager
    def ordinary_numbers(self, num_bytes: int) -> Iterator[None]:
        """While kernels are measured the first bytes hold ordinary numbers (not denormal, not shared zero pages)."""
        self._bytes[:num_bytes].fill(0x3C)  # as float32 about 0.01, as float64 about 1e-18
        yield
        self._bytes[:num_bytes].fill(0)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
