"""Who reads what, when: the order of samples and each rank's share of it, as pure functions.

A global batch consists of *shards*, one or several for each rank. ``shuffled``: one permutation of all samples per
epoch is cut into global batches and those into shards. ``contiguous``: shard s reads only block s of the samples
(``bounds``), in an order of its own per epoch, so that a rank never needs the data of another. ``replicated``: every
shard reads all samples in an order of its own, as if each had a copy of the data: that much more work per epoch.

Every rank computes the same order by itself, so no rank has to tell another, and a resumed run continues with the same
samples. The bits do not depend on any library's random generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing
from ringlet.errors import ConfigError, UsageError

_ORDER_STREAM = 1
_SPLIT_STREAM = 2
_BLOCK_STREAM = 6

PARTITIONS = ("shuffled", "contiguous", "replicated")


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


def block_order(n: int, num_blocks: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """``range(n)`` cut into contiguous blocks (``bounds``), each shuffled within itself."""
    order = np.empty(n, np.int64)
    for block in range(num_blocks):
        start, stop = bounds(n, block, num_blocks)
        order[start:stop] = start + _permutation(stop - start, hashing.stream(_BLOCK_STREAM, seed, epoch, block))
    return order


def split_indices(n: int, seed: int, num_held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut ``range(n)`` into (kept, held out), chosen by ``seed``; both sorted so that files are read forwards."""
    shuffled = _permutation(n, hashing.stream(_SPLIT_STREAM, seed))
    return np.sort(shuffled[num_held_out:]), np.sort(shuffled[:num_held_out])


def split_by_class(
    labels: NDArray[np.int64], seed: int, num_held_out: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As :func:`split_indices`, each class held out in proportion; one sample of every class at least is kept.

    So fewer than ``num_held_out`` may be held out. Fractions of samples go to the classes with the largest ones, among
    equals to the larger class, then to the one of the lower number.
    """
    sizes = np.bincount(labels)
    most = np.maximum(sizes - 1, 0)
    shares, rest = np.divmod(sizes * num_held_out, max(len(labels), 1))
    counts = np.minimum(shares, most)
    missing = min(num_held_out, int(most.sum())) - int(counts.sum())
    while missing > 0:
        open_classes = np.flatnonzero(counts < most)
        ranked = open_classes[np.lexsort((open_classes, -sizes[open_classes], -rest[open_classes]))][:missing]
        counts[ranked] += 1
        missing -= len(ranked)
    shuffled = _permutation(len(labels), hashing.stream(_SPLIT_STREAM, seed))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_held_out = place < np.repeat(counts, sizes)
    return np.sort(by_class[~is_held_out]), np.sort(by_class[is_held_out])


def _permutation(n: int, stream_key: int) -> NDArray[np.int64]:
    # The keys are distinct (the mixer is a bijection), so every correct sort gives the same permutation.
    return np.argsort(hashing.words(stream_key, np.arange(n, dtype=np.uint64))).astype(np.int64, copy=False)


@dataclass(frozen=True)
class Cut:
    """How an epoch of ``num_samples`` samples is cut into steps and shards; positions refer to the epoch's order."""

    num_samples: int
    global_batch_size: int
    num_shards: int
    contiguous: bool = False

    def __post_init__(self) -> None:
        if self.contiguous and self.global_batch_size < self.num_shards:
            raise ConfigError(
                f"global_batch_size = {self.global_batch_size} leaves some of {self.num_shards} contiguous shards "
                "without samples: expected at least one for each"
            )

    def num_steps(self, *, drop_last: bool = False) -> int:
        """Steps until every sample was read; with ``drop_last`` only those in which every shard is complete."""
        if self.contiguous:
            shards = [(self._block(shard), self._shard_size(shard)) for shard in range(self.num_shards)]
            counts = [divmod(stop - start, size) for (start, stop), size in shards]
        else:
            counts = [divmod(self.num_samples, self.global_batch_size)]
        if drop_last:
            return min(whole for whole, _ in counts)
        return max(whole + (rest > 0) for whole, rest in counts)

    def num_read(self, num_steps: int) -> int:
        """Samples of the first ``num_steps`` steps over all shards."""
        if not self.contiguous:
            return min(self.num_samples, num_steps * self.global_batch_size)
        starts = (self._block(shard)[0] for shard in range(self.num_shards))
        return sum(self.place(num_steps, shard)[0] - start for shard, start in enumerate(starts))

    def num_global(self, step: int) -> int:
        """Samples of one step over all shards."""
        return self.num_read(step + 1) - self.num_read(step)

    def place(self, step: int, shard: int) -> tuple[int, int]:
        """Where the samples of a shard at a step lie in the epoch's order."""
        if self.contiguous:
            start, stop = self._block(shard)
            size = self._shard_size(shard)
            return min(start + step * size, stop), min(start + (step + 1) * size, stop)
        begin = step * self.global_batch_size
        num_global = max(0, min(self.global_batch_size, self.num_samples - begin))
        first, last = bounds(num_global, shard, self.num_shards)
        return begin + first, begin + last

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The order in which an epoch reads its samples."""
        if self.contiguous:
            return block_order(self.num_samples, self.num_shards, seed, epoch)
        return order(self.num_samples, seed, epoch)

    def _block(self, shard: int) -> tuple[int, int]:
        return bounds(self.num_samples, shard, self.num_shards)

    def _shard_size(self, shard: int) -> int:
        start, stop = bounds(self.global_batch_size, shard, self.num_shards)
        return stop - start
