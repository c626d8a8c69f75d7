"""Ranks of one machine that meet in shared memory: no MPI, no network.

Two channels lie in one segment, one for collectives that are called and one for those that are started, so that both
may be under way at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, final
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.background import Background, check_startable
from ringlet.comm.calls import Calls
from ringlet.comm.channel import layout, open_channel
from ringlet.comm.channel.contract import Channel
from ringlet.comm.channel.elements import Form
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.comm.memory import Segment, share_segment
from ringlet.comm.rendezvous import meet_in_directory
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.streams import flush_streams
from ringlet.comm.window import LocalWindow, Window
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

GENERIC_CHUNK_BYTES = 1 << 20
"""How much of each rank is combined at once where NumPy does it."""

_OPEN: WeakSet[NodeCommunicator] = WeakSet()
"""All that this process can be waited for in."""


def segment_bytes(size: int) -> int:
    """The bytes of the segment that ``size`` ranks need for a :class:`NodeCommunicator`."""
    return 2 * _lane_bytes(size)


def join_node(job: str, rank: int, size: int) -> NodeCommunicator:
    """The communicator of a local job, whose ranks meet in the directory ``job``; every rank must call."""
    segment = meet_in_directory(job, rank, segment_bytes(size))
    communicator = NodeCommunicator(segment, rank, size)
    communicator.barrier()  # all have attached
    segment.seal()
    return communicator


@final
class NodeCommunicator(Communicator):
    """Ranks ``0 … size - 1`` over a segment of :func:`segment_bytes` that all of them have attached."""

    name = "node"

    def __init__(self, segment: Segment, rank: int, size: int, *, lane: Literal[0, 1] = 0) -> None:
        """``lane`` 1 is the second channel of the segment, for what is started."""
        self.rank = rank
        self.size = size
        self._owner = Owner()
        self._segment: Segment | None = segment
        start = lane * _lane_bytes(size)
        memory = segment.buffer[start : start + layout.channel_bytes(size)]
        self._control = layout.control_blocks(memory, size)[rank : rank + 1]
        self._channel: Channel | None = open_channel(memory, rank, size)
        self._calls = Calls()
        self._background: Background | None = None
        self._cross = SingleCommunicator()
        _OPEN.add(self)

    @property
    def local(self) -> Communicator:
        """Itself."""
        return self

    @property
    def cross(self) -> Communicator:
        """This rank alone."""
        return self._cross

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """One machine with all ranks."""
        return (self.size,)

    @property
    def node(self) -> int:
        """The only machine."""
        return 0

    # -- collectives --------------------------------------------------------------------------------------------------
    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """Every rank combines all slots in the order of ranks; with many ranks each a part, which it hands out."""
        channel = self._open_channel("allreduce")
        signature, form = self._reduction(channel, "allreduce", array, op)
        result = self._result(channel, signature, array, out)
        source = arrays.contiguous(array)
        if form is None:
            self._combine_generic(channel, signature, source, op, result)
            return result
        target = result if result.flags.c_contiguous else np.empty(result.shape, result.dtype)
        stranger = channel.allreduce(signature, form.element, form.how, _exported(source), _exported(target))
        self._check(channel, stranger)
        if target is not result:
            np.copyto(result, target)
        return result

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """Through the root's slots."""
        channel = self._open_channel("broadcast")
        signature = self._movement(channel, "broadcast", array, array.shape, f"root {root}")
        self._agreed(channel, signature, arrays.check_root, root, self.size)
        result = self._result(channel, signature, array, out)
        target = result if result.flags.c_contiguous else np.empty(result.shape, result.dtype)
        source = arrays.contiguous(array)
        self._check(channel, channel.broadcast(signature, _exported(source), _exported(target), root))
        if target is not result:
            np.copyto(result, target)
        return result

    def allgather(self, array: Array) -> Array:
        """The ranks tell each other how many rows they have, then everybody copies everybody's slots."""
        channel = self._open_channel("allgather")
        signature = self._movement(channel, "allgather", array, array.shape[1:], "rows")
        self._agreed(channel, signature, arrays.check_rows, array, "allgather")
        rows = self._values(channel, channel.exchange(signature, len(array)))
        result = np.empty((sum(rows), *array.shape[1:]), array.dtype)
        row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
        sizes = [count * row_bytes for count in rows]
        source = _exported(arrays.contiguous(array))
        self._check(channel, channel.allgather(signature, source, _exported(result), sizes))
        return result

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """Every slot holds a piece for each rank, which combines its pieces."""
        channel = self._open_channel("reduce_scatter")
        signature, form = self._reduction(channel, "reduce_scatter", array, op)
        self._agreed(channel, signature, arrays.check_rows, array, "reduce_scatter")
        start, stop = arrays.part(len(array), self.rank, self.size)
        if form is None:
            whole = np.empty(array.shape, array.dtype)
            self._combine_generic(channel, signature, arrays.contiguous(array), op, whole)
            return whole[start:stop].copy()
        result = np.empty((stop - start, *array.shape[1:]), array.dtype)
        width = 2 if array.dtype.kind == "c" else 1  # complex numbers travel as pairs
        row = int(np.prod(array.shape[1:], dtype=np.int64)) * width
        counts = [length * row for length in arrays.part_lengths(len(array), self.size)]
        source = _exported(arrays.contiguous(array))
        stranger = channel.reduce_scatter(signature, form.element, form.how, source, _exported(result), counts)
        self._check(channel, stranger)
        return result

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """Everybody tells everybody the splits, then every slot holds a piece for each rank."""
        channel = self._open_channel("alltoall")
        signature = self._movement(channel, "alltoall", array, array.shape[1:], "rows")
        self._agreed(channel, signature, arrays.check_rows, array, "alltoall")
        own = self._agreed(channel, signature, arrays.check_splits, len(array), splits, self.size)
        matrix = np.empty((self.size, self.size), np.int64)
        sizes = [self.size * matrix.itemsize] * self.size
        self._check(channel, channel.allgather(signature, np.array(own, np.int64), matrix, sizes))
        received = matrix[:, self.rank].copy()
        result = np.empty((int(received.sum()), *array.shape[1:]), array.dtype)
        row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
        source = _exported(arrays.contiguous(array))
        pieces = (matrix * row_bytes).reshape(-1).tolist()
        self._check(channel, channel.alltoall(signature, source, _exported(result), pieces))
        return result, received

    def barrier(self) -> None:
        """One round of sequence numbers."""
        channel = self._open_channel("barrier")
        self._check(channel, channel.barrier(self._calls.plain("barrier()")))

    # -- memory, groups -----------------------------------------------------------------------------------------------
    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """A segment of its own, made by rank 0."""
        channel = self._open_channel("shared_array")
        wanted = np.dtype(dtype)
        extents = tuple(int(extent) for extent in (shape if isinstance(shape, tuple) else (shape,)))
        signature = self._calls.plain(f"shared_array({extents}, {wanted})")
        self._agreed(channel, signature, arrays.check_movable, wanted)
        self._check(channel, channel.barrier(signature))
        num_bytes = int(np.prod(extents, dtype=np.int64)) * wanted.itemsize
        segment = self._share(num_bytes, range(self.size))
        assert segment is not None
        array: Array = segment.buffer.view(wanted).reshape(extents)
        return array

    def window(self, num_bytes: int) -> Window:
        """A segment of its own, and a lock."""
        self._open_channel("window")
        return LocalWindow(self, num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """The same over a segment of their own."""
        channel = self._open_channel("group")
        signature = self._calls.plain(f"group({list(ranks)})")
        chosen = self._agreed(channel, signature, arrays.check_ranks, ranks, self.size)
        self._check(channel, channel.barrier(signature))
        if len(chosen) == 1:
            return SingleCommunicator() if self.rank == chosen[0] else None
        segment = self._share(segment_bytes(len(chosen)), chosen)
        return None if segment is None else NodeCommunicator(segment, chosen.index(self.rank), len(chosen))

    def _share(self, num_bytes: int, members: Sequence[int]) -> Segment | None:
        """A new segment for the members; every rank must call."""
        maker = members[0]
        role: Literal["maker", "member", "bystander"] = "bystander"
        if self.rank in members:
            role = "maker" if self.rank == maker else "member"
        return share_segment(
            num_bytes,
            role,
            lambda token: self.broadcast_bytes(token if self.rank == maker else None, maker),
            lambda ready: bool(self.allreduce(np.array([ready]), Op.MIN)[0]),
        )

    # -- started collectives, the end ---------------------------------------------------------------------------------
    def start(self, collective: str, *arguments: Any, **options: Any) -> Handle:
        """In a thread, over the second channel."""
        self._open_channel(collective)
        check_startable(collective)
        if self._background is None:
            segment, rank, size = self._segment, self.rank, self.size
            assert segment is not None
            self._background = Background(lambda: NodeCommunicator(segment, rank, size, lane=1))
        return self._background.submit(collective, arguments, options)

    def fail(self) -> None:
        """End all waiting in collectives that are called, on all ranks and for good: so a thread leaves that must."""
        if self._channel is not None and self._owner.is_here:
            self._channel.fail(self.rank)

    def abort(self, exit_code: int) -> None:
        """Tell all ranks that wait for this one, then end this process at once; the launcher ends the others."""
        for communicator in list(_OPEN):
            channel = communicator._channel
            if channel is not None and communicator._owner.is_here:
                channel.fail(communicator.rank)
        flush_streams()
        os._exit(exit_code)

    def close(self) -> None:
        """Finish what was started; ranks that still wait for this one get an error."""
        if self._channel is None:
            return
        if self._owner.is_here:
            if self._background is not None:
                self._background.close()
            self._control["closed"] = 1
        self._channel = None
        self._segment = None
        _OPEN.discard(self)

    # -- agreement ----------------------------------------------------------------------------------------------------
    def _open_channel(self, collective: str) -> Channel:
        if self._channel is None:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")
        self._owner.check(collective, self.rank)
        return self._channel

    def _reduction(self, channel: Channel, collective: str, array: Array, op: Op) -> tuple[bytes, Form | None]:
        call = self._calls.reduction(collective, array.dtype, array.shape, op)
        if call.refusal is not None:
            self._agreed(channel, call.signature, _raise, call.refusal)
        return call.signature, call.form

    def _movement(self, channel: Channel, collective: str, array: Array, shape: tuple[int, ...], detail: str) -> bytes:
        signature = self._calls.movement(collective, array.dtype, shape, detail)
        if array.dtype.hasobject:
            self._agreed(channel, signature, arrays.check_movable, array.dtype)
        return signature

    def _result(self, channel: Channel, signature: bytes, array: Array, out: Array | None) -> Array:
        if out is None:
            return np.empty(array.shape, array.dtype)
        if out is array and array.flags.writeable:
            return out
        result: Array = self._agreed(channel, signature, arrays.result_array, array, out)
        return result

    def _agreed(self, channel: Channel, signature: bytes, check: Any, *arguments: Any) -> Any:
        """What ``check`` gives. If this rank must refuse its call, the others, who do not know, get an error too."""
        try:
            return check(*arguments)
        except CommunicationError as error:
            refused = layout.signature(f"{signature[8:].decode(errors='replace')}, refused")
            self._check(channel, channel.barrier(refused))
            raise error from None

    def _check(self, channel: Channel, stranger: int) -> None:
        if stranger < 0:
            return
        calls = [channel.text(rank).decode(errors="replace") for rank in (0, stranger)]
        raise CommunicationError(
            f"ranks disagree: rank 0 called {calls[0]}, rank {stranger} called {calls[1]} (this is rank {self.rank} of "
            f"{self.size}). Every rank must call the same collectives in the same order, with arrays that fit"
        )

    def _values(self, channel: Channel, values: list[int] | int) -> list[int]:
        if isinstance(values, int):
            self._check(channel, values)
            return []
        return values

    def _combine_generic(self, channel: Channel, signature: bytes, source: Array, op: Op, result: Array) -> None:
        """What channels do not combine themselves: gather a chunk of all ranks, combine it with NumPy."""
        flat, target = source.reshape(-1), np.empty(source.size, source.dtype)
        chunk = max(1, GENERIC_CHUNK_BYTES // source.dtype.itemsize)
        for start in range(0, max(flat.size, 1), chunk):
            piece = flat[start : start + chunk]
            gathered = np.empty((self.size, piece.size), piece.dtype)
            sizes = [piece.nbytes] * self.size
            self._check(channel, channel.allgather(signature, _exported(piece), _exported(gathered), sizes))
            total = gathered[0].astype(gathered.dtype.newbyteorder("="))
            for values in gathered[1:]:
                arrays.combine(op, total, values)
            arrays.finish(op, total, self.size)
            target[start : start + chunk] = total
        np.copyto(result, target.reshape(result.shape))


def _lane_bytes(size: int) -> int:
    """Of one channel, in whole pages."""
    return -(-layout.channel_bytes(size) // layout.PAGE_BYTES) * layout.PAGE_BYTES


def _exported(array: Array) -> Array:
    """The array in a form whose memory C++ can ask for: dtypes that Python has no letter for become bytes."""
    return array if array.dtype.kind in "biuf" or array.dtype.char in "FD" else array.reshape(-1).view(np.uint8)


def _raise(error: CommunicationError) -> None:
    raise error
