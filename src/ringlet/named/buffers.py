"""Memory for allreduces that need no copy: every rank's values lie where the other ranks of its machine see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from ringlet import kernels
from ringlet.comm import arrays
from ringlet.comm.contract import Array, Communicator, Op

CHUNK_ELEMENTS = 1 << 15
"""So much of each rank is added up at once: it stays in the caches until it is handed out."""
_LINE_BYTES = 64


@final
class Buffer:
    """A flat array for each rank, made by ``NamedCollectives.buffer``; ``own`` is that of this rank, zeros at first."""

    def __init__(self, number: int, rows: Array, local_rank: int) -> None:
        self.number = number
        """Of the buffers of a process set, the same on every rank."""
        self.rows = rows
        """The arrays of all ranks of this machine."""
        self.own: Array = rows[local_rank]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.own.dtype


def make_buffer(communicator: Communicator, number: int, num_elements: int, dtype: np.dtype[Any]) -> Buffer:
    """Every rank must call. Rows begin at cache lines, so that ranks do not disturb each other."""
    num_bytes = num_elements * dtype.itemsize
    padded = -(-num_bytes // _LINE_BYTES) * _LINE_BYTES
    memory = communicator.shared_array((communicator.local_size, padded), np.uint8)
    return Buffer(number, memory[:, :num_bytes].view(dtype), communicator.local_rank)


def can_add_in_place(communicator: Communicator, dtype: np.dtype[Any], num_participants: int) -> bool:
    """Whether :func:`add_in_place` serves: sums of float32 and float64, machines with equally many ranks.

    Where ranks have joined, all must be on one machine: else a part might have no one to send it.
    """
    sizes = communicator.local_sizes
    alike = len(sizes) == 1 or (len(set(sizes)) == 1 and num_participants == communicator.size)
    return dtype.name in ("float32", "float64") and dtype.isnative and alike


def add_in_place(
    communicator: Communicator,
    buffer: Buffer | None,
    start: int,
    stop: int,
    participants: Sequence[int],
    before: float,
    after: float,
) -> None:
    """Every participant's ``own[start:stop]`` becomes ``after`` times the sum of ``before`` times their values; every
    rank must call, without a buffer if it does not participate.

    All participants have written their values, and all ranks have met since. Each participant adds up its part, the
    machines exchange parts, and each part goes to the rows of all participants of the machine.
    """
    local, cross = communicator.local, communicator.cross
    rows = range(local.size) if cross.size > 1 else participants
    if buffer is not None:
        begin, end = arrays.part(stop - start, list(rows).index(local.rank), len(rows))
        begin, end = start + begin, start + end
        inputs, own = [buffer.rows[row] for row in rows], buffer.own
        others = [buffer.rows[row] for row in rows if row != local.rank]
        if cross.size > 1:
            for chunk in _chunks(begin, end):
                _add(inputs, own, chunk, before)
            cross.allreduce(own[begin:end], Op.SUM, out=own[begin:end])
            inputs, before = [own], 1.0
        for chunk in _chunks(begin, end):
            _add(inputs, own, chunk, before)
            if after != 1.0:
                kernels.load().scale(own[chunk], after)
            for row in others:
                np.copyto(row[chunk], own[chunk])
    local.barrier()


def _chunks(begin: int, end: int) -> Iterator[slice]:
    return (slice(at, min(at + CHUNK_ELEMENTS, end)) for at in range(begin, end, CHUNK_ELEMENTS))


def _add(inputs: Sequence[Array], out: Array, chunk: slice, before: float) -> None:
    """The sum of ``before`` times the inputs, in the order of ranks."""
    parts = [values[chunk] for values in inputs]
    if before != 1.0:
        parts = [np.multiply(part, part.dtype.type(before)) for part in parts]
    if len(parts) > 1:
        order = [0, *(item for place in range(1, len(parts)) for item in (place, -1))]
        kernels.load().add_tree(parts, order, out[chunk])
    elif before != 1.0:
        np.copyto(out[chunk], parts[0])
