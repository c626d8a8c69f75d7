"""Norms over whole flat buffers of which each rank has only some ranges, with bits that do not depend on the ranges.

Sums of squares are taken over pieces: the blocks of every parameter. Each rank fills in its own pieces, the others are
zero; adding zeros is exact, so after the exchange every rank holds the same numbers and adds them in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.kernels.contract import Kernels
from ringlet.optim import Segment, SegmentNorms
from ringlet.strategies.ownership import OwnedRange, Range, blocks


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
