"""Who updates which elements of the flat buffers.

The elements are cut into buckets (what is exchanged at once), every bucket into one range per owner. Borders lie on
multiples of ``BLOCK``, so that sums over blocks, and with them norms, do not depend on the number of owners.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data.partition import bounds
from ringlet.kernels.contract import Kernels
from ringlet.optim import Segment, SegmentNorms, cut_segments

BLOCK = 4096
"""Elements; the unit of ownership."""
BUCKET_BLOCKS = 64
"""Blocks of one bucket for each owner: a megabyte of float32, so that a range is updated while it is still in cache."""


class Range(NamedTuple):
    """Elements ``start … stop - 1`` of a flat buffer."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many elements."""
        return self.stop - self.start

    def slice(self) -> slice:
        """For indexing."""
        return slice(self.start, self.stop)

    def shifted(self, distance: int) -> Range:
        """The same elements where the buffer is part of a larger one."""
        return Range(self.start + distance, self.stop + distance)


@dataclass(frozen=True)
class OwnedRange:
    """What one owner has of one bucket."""

    elements: Range
    in_state: Range
    """Where the optimizer's state of these elements lies in the owner's state arrays."""
    segments: tuple[Segment, ...]
    bucket: Range


def owned_ranges(
    num_elements: int, owner: int, num_owners: int, segments: Sequence[Segment] = ()
) -> tuple[OwnedRange, ...]:
    """The ranges of ``owner``, one per bucket in which it has elements, from the front to the back."""
    owned, position = [], 0
    for bucket in buckets(num_elements, num_owners):
        elements = _share(bucket, owner, num_owners)
        if elements.size > 0:
            in_state = Range(position, position + elements.size)
            owned.append(OwnedRange(elements, in_state, cut_segments(segments, *elements), bucket))
            position = in_state.stop
    return tuple(owned)


def buckets(num_elements: int, num_owners: int) -> tuple[Range, ...]:
    """Equally many elements each, but for the last."""
    step = BLOCK * BUCKET_BLOCKS * num_owners
    return tuple(Range(start, min(start + step, num_elements)) for start in range(0, num_elements, step))


def blocks(elements: Range) -> Iterator[Range]:
    """The blocks of a range; its borders count as borders of blocks."""
    start = elements.start
    while start < elements.stop:
        stop = min((start // BLOCK + 1) * BLOCK, elements.stop)
        yield Range(start, stop)
        start = stop


def num_owned(ranges: Iterable[OwnedRange]) -> int:
    """Elements of all ranges."""
    return sum(owned.elements.size for owned in ranges)


def _share(bucket: Range, owner: int, num_owners: int) -> Range:
    first, last = bounds(-(-bucket.size // BLOCK), owner, num_owners)
    return Range(bucket.start + first * BLOCK, min(bucket.start + last * BLOCK, bucket.stop))


@final
class Norms:
    """Sums of squares of buffers laid out as ``segments``; every rank of ``comm`` must call the methods.

    The ranges of all its ranks together are the whole buffer, none twice: ``comm`` are the ranks of one machine.
    """

    def __init__(
        self, comm: Communicator, segments: Sequence[Segment], owned: Sequence[OwnedRange], kernels: Kernels
    ) -> None:
        self._comm, self._segments, self._kernels = comm, segments, kernels
        pieces = [list(blocks(Range(segment.start, segment.stop))) for segment in segments]
        self._first = np.cumsum([0, *map(len, pieces)]).tolist()
        ranges = [part.elements for part in owned]
        self._own = [
            (place, piece.slice())
            for place, piece in enumerate(piece for group in pieces for piece in group)
            if any(part.start <= piece.start and piece.stop <= part.stop for part in ranges)
        ]

    def global_norm(self, gradients: NDArray[Any]) -> float:
        """The norm of all gradients; ``gradients`` need to be right in this rank's ranges only."""
        return math.sqrt(float(np.add.reduce(self._exchange(gradients)[0])))

    def segment_norms(self, parameters: NDArray[Any], gradients: NDArray[Any]) -> dict[str, SegmentNorms]:
        """The norms of every parameter and of its gradient."""
        sums = self._exchange(parameters, gradients)
        norms = {}
        for segment, (first, last) in zip(self._segments, pairwise(self._first), strict=True):
            of_parameters, of_gradients = np.sqrt(np.add.reduce(sums[:, first:last], axis=1)).tolist()
            norms[segment.name] = SegmentNorms(of_parameters, of_gradients)
        return norms

    def _exchange(self, *buffers: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.zeros((len(buffers), self._first[-1]), np.float64)
        for row, buffer in zip(sums, buffers, strict=True):
            for place, piece in self._own:
                row[place] = self._kernels.sum_squares(buffer[piece])
        return self._comm.allreduce(sums, out=sums)
