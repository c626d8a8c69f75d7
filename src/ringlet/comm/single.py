"""One rank alone: a real communicator whose collectives have nobody to talk to, so no code asks "distributed?"."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.background import BackgroundHandle, check_startable
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.comm.streams import flush_streams
from ringlet.comm.window import LocalWindow, Window
from ringlet.errors import CommunicationError

ALIGNMENT = 64
"""Bytes: the size of a cache line and of the widest vector."""


@final
class SingleCommunicator(Communicator):
    """A group of one rank. Arguments are checked as strictly as among many, results are copies as among many."""

    name = "single"

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self._closed = False

    @property
    def local(self) -> Communicator:
        """Itself."""
        return self

    @property
    def cross(self) -> Communicator:
        """Itself."""
        return self

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """One machine with one rank."""
        return (1,)

    @property
    def node(self) -> int:
        """The only machine."""
        return 0

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """The array itself, copied."""
        self._check_open("allreduce")
        arrays.check_reduction(array.dtype, op)
        return _copied(array, out)

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """The array itself, copied."""
        self._check_open("broadcast")
        arrays.check_movable(array.dtype)
        arrays.check_root(root, 1)
        return _copied(array, out)

    def allgather(self, array: Array) -> Array:
        """The array itself, copied."""
        self._check_open("allgather")
        arrays.check_movable(array.dtype)
        arrays.check_rows(array, "allgather")
        return _copied(array, None)

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """The array itself, copied."""
        self._check_open("reduce_scatter")
        arrays.check_reduction(array.dtype, op)
        arrays.check_rows(array, "reduce_scatter")
        return _copied(array, None)

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """The array itself, copied."""
        self._check_open("alltoall")
        arrays.check_movable(array.dtype)
        arrays.check_rows(array, "alltoall")
        received = np.array(arrays.check_splits(len(array), splits, 1), np.int64)
        return _copied(array, None), received

    def barrier(self) -> None:
        """Nobody to wait for."""
        self._check_open("barrier")

    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of this rank alone: zeros, aligned."""
        self._check_open("shared_array")
        return aligned_zeros(shape, dtype)

    def window(self, num_bytes: int) -> Window:
        """Memory of this rank alone."""
        self._check_open("window")
        return LocalWindow(self, num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """Another communicator of this one rank."""
        self._check_open("group")
        arrays.check_ranks(ranks, 1)
        return SingleCommunicator()

    def start(self, collective: str, *arguments: Any, **options: Any) -> Handle:
        """Run it at once; errors are raised by the handle, as among many."""
        check_startable(collective)
        self._check_open(collective)
        handle = BackgroundHandle()
        handle.run(lambda: getattr(self, collective)(*arguments, **options))
        return handle

    def abort(self, exit_code: int) -> None:
        """End this process at once."""
        flush_streams()
        os._exit(exit_code)

    def close(self) -> None:
        """Collectives raise from now on."""
        self._closed = True

    def _check_open(self, collective: str) -> None:
        if self._closed:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")


def aligned_zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array of zeros that begins at a multiple of :data:`ALIGNMENT` bytes."""
    wanted = np.dtype(dtype)
    arrays.check_movable(wanted)
    num_bytes = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
    memory = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + num_bytes].view(wanted).reshape(shape)


def _copied(array: Array, out: Array | None) -> Array:
    result = arrays.result_array(array, out)
    np.copyto(result, array)
    return result
