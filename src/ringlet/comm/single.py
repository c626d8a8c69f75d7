"""One rank alone: a real communicator whose collectives have no one to talk to, so no code asks "distributed?"."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from ringlet.comm import arrays
from ringlet.comm.collective import Array, BackgroundHandle, Collective, Result
from ringlet.comm.contract import Communicator, Handle
from ringlet.comm.window import LocalWindow, Window
from ringlet.errors import CommunicationError
from ringlet.output_streams import flush_streams

ALIGNMENT = 64
"""Bytes: the size of a cache line and of the widest vector."""


@final
class SingleCommunicator(Communicator):
    """A group of one rank. Arguments are checked as strictly as among many, results are copies as among many."""

    name = "single"

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.machines = [[0]]
        self._closed = False

    @property
    def local(self) -> Communicator:
        """Itself."""
        return self

    @property
    def cross(self) -> Communicator:
        """Itself."""
        return self

    def run(self, collective: Collective[Result], *arguments: Any) -> Result:
        """By what it does for a rank alone."""
        self._check_open(collective.name)
        function = collective.single or collective.composed
        assert function is not None
        return function(self, *collective.checked(1, arguments))

    def begin(self, collective: Collective[Any], *arguments: Any) -> Handle:
        """Run it at once; errors are raised by the handle, as among many."""
        self._check_open(collective.name)
        handle = BackgroundHandle()
        handle.run(lambda: self.run(collective, *arguments))
        return handle

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
