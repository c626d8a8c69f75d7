"""Batches of an epoch, made between two steps or, where that takes long, ahead by one background thread.

The order is a pure function of (seed, epoch); a rank reads only its shards of each global batch. Nothing here draws
from a shared random state, so threads and ranks cannot fall out of step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ringlet.data.augmentation import Augmentation
from ringlet.data.normalization import Normalization
from ringlet.data.partition import PARTITIONS, Cut, bounds
from ringlet.data.source import Indices, Samples, Source, weights_of
from ringlet.errors import ConfigError, DataError, UnknownNameError
from ringlet.forks import Owner

QUICK = 0.25e-3
"""Seconds; a batch that is made in less is not worth a thread: handing it over takes about as long."""
_SLOW_BATCHES = 3
"""So many more slow batches than quick ones, and the thread makes the rest."""


class Piece(NamedTuple):
    """The rows ``start:stop`` of a batch that belong to one shard; none in a ragged last batch that is too short."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class Batch:
    """This rank's share of one global batch, ready for a replica: the rows of its shards, one after the other."""

    inputs: NDArray[Any]  # (n, *input_shape), floating, normalised and augmented
    targets: NDArray[Any]  # as the source has them (see Source), or shares of classes (n, K, …) of mixed samples
    indices: Indices  # which samples of the source these are
    epoch: int
    step_in_epoch: int
    num_global: int  # samples of the whole global batch, over all ranks
    pieces: tuple[Piece, ...]  # which rows belong to which shard
    weights: NDArray[Any] | None = None  # (n,) how much each sample counts in the loss; None: all the same

    def __len__(self) -> int:
        return len(self.indices)


class BatchLoader:
    """Cuts a source into batches; see the module for what is promised.

    A global batch is cut into ``num_shards``, of which this loader gives ``shards`` (default: all), by ``partition``:
    see :mod:`ringlet.data.partition`. Batches that take long to make are made up to ``prefetch`` ahead (0: never, no
    thread). ``max_steps`` limits an epoch (0: no limit). Without ``shuffle`` samples come in the order of the source,
    every epoch.
    """

    def __init__(
        self,
        source: Source,
        *,
        global_batch_size: int,
        seed: int = 0,
        normalization: Normalization | None = None,
        augmentation: Augmentation | None = None,
        dtype: str = "float32",
        shuffle: bool = True,
        drop_last: bool = False,
        prefetch: int = 2,
        num_shards: int = 1,
        shards: range | None = None,
        partition: str = "shuffled",
        max_steps: int = 0,
    ) -> None:
        _check_counts(source, global_batch_size, prefetch, max_steps)
        if dtype not in ("float32", "float64"):
            raise ConfigError(f"dtype = {dtype!r}: expected float32 or float64")
        if partition not in PARTITIONS:
            raise UnknownNameError("partition", partition, PARTITIONS)
        if augmentation is not None:
            augmentation.check_shape(source.input_shape)
        self._source = source
        self._normalization = normalization or Normalization()
        self._augmentation = augmentation
        self._shuffle = shuffle
        self._prefetch = prefetch
        self._is_slow = False
        num_copies = num_shards if partition == "replicated" else 1  # a block of its own, all samples long, per shard
        self._cut = Cut(len(source) * num_copies, global_batch_size, num_shards, partition != "shuffled")
        self._shards = _checked_shards(shards, num_shards)
        self._pool = _Pool(source, num_shards if partition == "contiguous" else 1)
        self.seed = seed
        self.dtype = dtype
        self.global_batch_size = global_batch_size
        steps = self._cut.num_steps(drop_last=drop_last)
        if steps == 0:
            raise DataError(
                f"{len(source)} samples make no complete batch of {global_batch_size}: "
                "choose a smaller batch or keep the last one"
            )
        self.num_steps = min(steps, max_steps) if max_steps else steps
        self.num_samples = self._cut.num_read(self.num_steps)
        """Samples of one epoch over all ranks: dropped and left-out ones not counted."""

    def num_read(self, num_steps: int) -> int:
        """Samples of the first ``num_steps`` steps of an epoch over all ranks."""
        return self._cut.num_read(num_steps)

    def epoch(self, epoch: int, start_step: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from ``start_step`` on; close the generator to leave early."""
        if not 0 <= start_step <= self.num_steps:
            raise ConfigError(f"start_step = {start_step}: expected 0 … {self.num_steps}, the steps of an epoch")
        order = self._cut.order(self.seed, epoch) if self._shuffle else None
        steps = range(start_step, self.num_steps)
        return self._batches(_Maker(self, epoch, order), iter(steps))

    def _batches(self, make: Callable[[int], Batch], steps: Iterator[int]) -> Generator[Batch, None, None]:
        """``make(step)`` for each step: here, until that turns out to take long, then ahead; later epochs know."""
        lateness = 0
        while not (self._is_slow and self._prefetch):
            step = next(steps, None)
            if step is None:
                return
            start = perf_counter()
            batch = make(step)
            lateness = max(0, lateness + (1 if perf_counter() - start > QUICK else -1))
            self._is_slow = lateness >= _SLOW_BATCHES
            yield batch
        yield from ahead(make, steps, self._prefetch)

    def make_batch(self, epoch: int, step: int, order: Indices | None) -> Batch:
        """This rank's share of the global batch at ``step``."""
        places = [self._cut.place(step, shard) for shard in self._shards]
        parts = [np.arange(*place, dtype=np.int64) if order is None else order[slice(*place)] for place in places]
        indices = np.concatenate(parts) % len(self._source)
        inputs, targets = self._source.read(indices)
        if self._augmentation is not None:
            inputs, targets = self._augmentation.apply((inputs, targets), indices, self.seed, epoch, self._pool)
        if targets.dtype.kind == "f":
            targets = targets.astype(self.dtype, copy=False)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        pieces = tuple(
            Piece(shard, end - len(part), end) for shard, part, end in zip(self._shards, parts, ends, strict=True)
        )
        inputs = self._normalization.apply(inputs, self.dtype)
        weights = weights_of(self._source, indices)
        return Batch(inputs, targets, indices, epoch, step, self._cut.num_global(step), pieces, weights)


@final
class _Pool:
    """Partners of samples that are mixed: any of the source, or of the block that contiguous shards keep to."""

    def __init__(self, source: Source, num_blocks: int) -> None:
        self._source = source
        self.num_classes = source.num_classes
        starts = [bounds(len(source), block, num_blocks)[0] for block in range(num_blocks)]
        self._starts, self._ends = np.array(starts), np.array([*starts[1:], len(source)])

    def partners(self, indices: Indices, uniform: NDArray[np.float64]) -> Indices:
        """A sample of the same block for each, by numbers in [0, 1)."""
        blocks = np.searchsorted(self._ends, indices, side="right")
        starts, ends = self._starts[blocks], self._ends[blocks]
        return np.asarray(starts + (uniform * (ends - starts)).astype(np.int64), np.int64)

    def read(self, indices: Indices) -> Samples:
        """The samples of the source."""
        return self._source.read(indices)


class _Maker:
    """Binds an epoch to a loader, so that the thread refers to nothing that refers to the thread."""

    def __init__(self, loader: BatchLoader, epoch: int, order: Indices | None) -> None:
        self._loader, self._epoch, self._order = loader, epoch, order

    def __call__(self, step: int) -> Batch:
        return self._loader.make_batch(self._epoch, step, self._order)


def ahead(make: Callable[[int], Batch], steps: Iterable[int], depth: int) -> Generator[Batch, None, None]:
    """``make(step)`` for each step, computed up to ``depth`` ahead by one thread that ends with the generator."""
    owner = Owner()
    ready: SimpleQueue[Batch | BaseException | None] = SimpleQueue()
    free = threading.Semaphore(depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_produce, args=(make, steps, ready, free, stopped), name="ringlet-prefetch", daemon=True
    )
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            free.release()
            yield item
    finally:
        if owner.is_here:  # the thread is not in a copy of this process, but may have left its locks closed there
            stopped.set()
            free.release()
            thread.join()


def _produce(
    make: Callable[[int], Batch],
    steps: Iterable[int],
    ready: SimpleQueue[Batch | BaseException | None],
    free: threading.Semaphore,
    stopped: threading.Event,
) -> None:
    try:
        for step in steps:
            free.acquire()
            if stopped.is_set():
                return
            ready.put(make(step))
        ready.put(None)
    except BaseException as error:
        ready.put(error)


def _checked_shards(shards: range | None, num_shards: int) -> range:
    chosen = range(num_shards) if shards is None else shards
    if num_shards < 1 or not 0 <= chosen.start < chosen.stop <= num_shards or chosen.step != 1:
        raise ConfigError(f"shards = {chosen} of {num_shards}: expected a range of at least one shard within them")
    return chosen


def _check_counts(source: Source, global_batch_size: int, prefetch: int, max_steps: int) -> None:
    if global_batch_size < 1:
        raise ConfigError(f"global_batch_size = {global_batch_size}: expected at least 1")
    if prefetch < 0 or max_steps < 0:
        raise ConfigError(f"prefetch = {prefetch}, max_steps = {max_steps}: expected 0 or more")
    if len(source) == 0:
        raise DataError("the source has no samples: expected at least one")
