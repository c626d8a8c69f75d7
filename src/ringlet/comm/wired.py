"""Collectives over a wire: every dtype and operation, made of the few things that a wire can do.

What the wire cannot combine by itself (float16, booleans, minima with NaN, …) is sent to the rank that owns that part,
combined there in the order of ranks, and gathered: the same traffic as a reduction by the wire, the same bits on all
ranks, and one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final
from zlib import crc32

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.background import Background
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.window import Window
from ringlet.comm.wire import Wire
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

NO_THREADS = (
    "collectives cannot be started here: this MPI does not let several threads communicate (MPI_THREAD_MULTIPLE). "
    "Call them instead, or use an MPI that was built with thread support"
)


@final
class WiredCommunicator(Communicator):
    """Ranks that share no memory: each is a machine of its own."""

    def __init__(self, wire: Wire, *, spare: Wire | None = None) -> None:
        """``spare`` is a second wire of the same ranks; without it collectives cannot be started."""
        self.name = wire.name
        self.rank = wire.rank
        self.size = wire.size
        self._wire = wire
        self._local = SingleCommunicator()
        self._background = None if spare is None else Background(lambda: WiredCommunicator(spare))
        self._closed = False
        self._owner = Owner()

    @property
    def local(self) -> Communicator:
        """This rank alone."""
        return self._local

    @property
    def cross(self) -> Communicator:
        """All ranks."""
        return self

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """A one for every rank."""
        return (1,) * self.size

    @property
    def node(self) -> int:
        """The rank."""
        return self.rank

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """By the wire itself where it can, else part by part."""
        self._check_open("allreduce")
        arrays.check_reduction(array.dtype, op)
        result = arrays.result_array(array, out)
        if self._wire.reduces(array.dtype, op):
            flat = _flat_copy(array, result)
            self._wire.allreduce(flat, Op.SUM if op is Op.AVERAGE else op)
            arrays.finish(op, flat, self.size)
        else:
            counts = arrays.part_lengths(array.size, self.size)
            mine = self._reduce_part(arrays.contiguous(array).reshape(-1), counts, op)
            flat = _flat_target(result)
            itemsize = array.dtype.itemsize
            self._wire.allgather(arrays.as_bytes(mine), arrays.as_bytes(flat), [count * itemsize for count in counts])
        return _deliver(flat, result)

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """The bytes of the root."""
        self._check_open("broadcast")
        arrays.check_movable(array.dtype)
        arrays.check_root(root, self.size)
        result = arrays.result_array(array, out)
        flat = _flat_copy(array, result) if self.rank == root else _flat_target(result)
        self._wire.broadcast(arrays.as_bytes(flat), root)
        return _deliver(flat, result)

    def allgather(self, array: Array) -> Array:
        """Rows of all ranks; their numbers and kinds are exchanged first."""
        self._check_open("allgather")
        arrays.check_movable(array.dtype)
        arrays.check_rows(array, "allgather")
        headers = np.zeros((self.size, 2), np.int64)
        mine = np.array([[len(array), _row_signature(array)]], np.int64)
        self._wire.allgather(arrays.as_bytes(mine), arrays.as_bytes(headers), [mine.nbytes] * self.size)
        self._check_rows_agree("allgather", array, headers[:, 1])
        result = np.empty((int(headers[:, 0].sum()), *array.shape[1:]), array.dtype)
        row_bytes = _row_bytes(array)
        counts = [rows * row_bytes for rows in headers[:, 0].tolist()]
        self._wire.allgather(arrays.as_bytes(arrays.contiguous(array)), arrays.as_bytes(result), counts)
        return result

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """Every rank gets its rows from all others and combines them in the order of ranks."""
        self._check_open("reduce_scatter")
        arrays.check_reduction(array.dtype, op)
        arrays.check_rows(array, "reduce_scatter")
        rows = arrays.part_lengths(len(array), self.size)
        row_size = int(np.prod(array.shape[1:], dtype=np.int64))
        flat = arrays.contiguous(array).reshape(-1)
        mine = self._reduce_part(flat, [count * row_size for count in rows], op)
        return mine.reshape(rows[self.rank], *array.shape[1:])

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """Rows for every rank; their numbers and kinds are exchanged first."""
        self._check_open("alltoall")
        arrays.check_movable(array.dtype)
        arrays.check_rows(array, "alltoall")
        sent = arrays.check_splits(len(array), splits, self.size)
        headers = np.array([[rows, _row_signature(array)] for rows in sent], np.int64)
        received = np.zeros_like(headers)
        pairs = [headers.itemsize * 2] * self.size
        self._wire.alltoall(arrays.as_bytes(headers), pairs, arrays.as_bytes(received), pairs)
        self._check_rows_agree("alltoall", array, received[:, 1])
        row_bytes = _row_bytes(array)
        result = np.empty((int(received[:, 0].sum()), *array.shape[1:]), array.dtype)
        self._wire.alltoall(
            arrays.as_bytes(arrays.contiguous(array)),
            [rows * row_bytes for rows in sent],
            arrays.as_bytes(result),
            [rows * row_bytes for rows in received[:, 0].tolist()],
        )
        return result, received[:, 0].copy()

    def barrier(self) -> None:
        """Of the wire."""
        self._check_open("barrier")
        self._wire.barrier()

    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of this rank alone."""
        self._check_open("shared_array")
        return self._local.shared_array(shape, dtype)

    def window(self, num_bytes: int) -> Window:
        """One-sided memory, if the wire has it."""
        self._check_open("window")
        return self._local.window(num_bytes) if self.size == 1 else self._wire.window(num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """A wire of these ranks."""
        self._check_open("group")
        chosen = arrays.check_ranks(ranks, self.size)
        if self.rank not in chosen:
            return None
        wire = self._wire.subset(chosen)
        return WiredCommunicator(wire, spare=self._wire.subset(chosen) if self._background else None)

    def start(self, collective: str, *arguments: Any, **options: Any) -> Handle:
        """In a thread, over the spare wire."""
        self._check_open(collective)
        if self._background is None:
            raise CommunicationError(NO_THREADS)
        return self._background.submit(collective, arguments, options)

    def abort(self, exit_code: int) -> None:
        """End the job."""
        if not self._owner.is_here:
            self._local.abort(exit_code)
        self._wire.abort(exit_code)

    def close(self) -> None:
        """Finish what was started; the wire itself stays until the process ends, as others may still use it."""
        self._closed = True
        if self._background is not None and self._owner.is_here:
            self._background.close()

    def _reduce_part(self, flat: Array, counts: Sequence[int], op: Op) -> Array:
        """The part of this rank, ``counts[rank]`` elements, combined in the order of ranks and rounded once."""
        received = np.empty((self.size, counts[self.rank]), flat.dtype)
        itemsize = flat.dtype.itemsize
        own = [received.shape[1] * itemsize] * self.size
        sent = [count * itemsize for count in counts]
        self._wire.alltoall(arrays.as_bytes(flat), sent, arrays.as_bytes(received), own)
        total: Array = received[0].astype(arrays.accumulator(flat.dtype))
        for values in received[1:]:
            arrays.combine(op, total, values)
        arrays.finish(op, total, self.size)
        rounded: Array = total.astype(flat.dtype, copy=False)
        return rounded

    def _check_rows_agree(self, collective: str, array: Array, signatures: NDArray[np.int64]) -> None:
        """If any two ranks disagree, all ranks see it, tell each other what they called, and raise."""
        if (signatures == signatures[self.rank]).all():
            return
        called = self.allgather_bytes(f"dtype {array.dtype} and rows of shape {array.shape[1:]}".encode())
        calls = "; ".join(f"rank {rank} with {text.decode()}" for rank, text in enumerate(called))
        raise CommunicationError(
            f"ranks called {collective} with arrays that do not fit together: {calls}. "
            "Pass the same dtype and, but for axis 0, the same shape on every rank"
        )

    def _check_open(self, collective: str) -> None:
        if self._closed:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")
        self._owner.check(collective, self.rank)


def _row_signature(array: Array) -> int:
    return crc32(f"{array.dtype.str} {array.dtype.name} {array.shape[1:]}".encode())


def _row_bytes(array: Array) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize


def _flat_target(result: Array) -> Array:
    """Where to work: the memory of ``result`` itself if it is contiguous."""
    return result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, result.dtype)


def _flat_copy(array: Array, result: Array) -> Array:
    """The values of ``array`` where the work is done."""
    flat = _flat_target(result)
    np.copyto(flat.reshape(array.shape), array)
    return flat


def _deliver(flat: Array, result: Array) -> Array:
    if not result.flags.c_contiguous:
        np.copyto(result, flat.reshape(result.shape))
    return result
