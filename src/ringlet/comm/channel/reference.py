"""The channel in NumPy: the specification of the compiled one, and what runs without it.

A *round* is: every rank writes what the others shall see into its own block and slot, raises its own sequence number,
waits until all others have raised theirs, reads. A rank that starts round s + 2 knows that all have arrived in round
s + 1 and so have read everything of round s: two slots in turn are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm import arrays
from ringlet.comm.arrays import Form
from ringlet.comm.channel import layout
from ringlet.comm.channel.fence import memory_fence
from ringlet.comm.channel.layout import Bytes
from ringlet.errors import CommunicationError

MAX_WHOLE_BYTES = 16 << 10
"""Up to this many bytes every rank combines everything itself; beyond, sharing the work is worth a second round."""
WATCH_SECONDS = 0.05
SHORTEST_SLEEP, LONGEST_SLEEP = 2e-5, 2e-3


@final
class Channel:
    """One rank's end: see :class:`ringlet.comm.channel.Channel`."""

    def __init__(
        self,
        memory: Bytes,
        rank: int,
        size: int,
        slot_bytes: int,
        spins: int,
        yields: int,
        watch: Callable[[int, int], None],
    ) -> None:
        self._rank = rank
        self._size = size
        self._slot_bytes = slot_bytes
        self._patience = yields if spins else 0
        self._watch = watch
        self._failure = layout.failure_word(memory)
        self._blocks = layout.control_blocks(memory, size)
        self._sequences = self._blocks["sequence"]
        start = layout.slots_offset(size)
        self._slots = memory[start : start + 2 * size * slot_bytes].reshape(size, 2, slot_bytes)
        self._sequence = 0
        self._turn = 0
        self._first = 0
        self._busy = threading.Lock()
        self._order_memory = memory_fence()

    # -- rounds -------------------------------------------------------------------------------------------------------
    def _slot(self, rank: int) -> Bytes:
        slot: Bytes = self._slots[rank, self._turn & 1]
        return slot

    def _meet(self) -> None:
        """Arrive and wait for all: what others have written before is seen after, and the other way round."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        self._order_memory()
        self._sequences[self._rank] = self._sequence
        for peer in range(self._size):
            self._wait_for(peer)
        self._order_memory()

    def _reached(self, peer: int) -> bool:
        return (int(self._sequences[peer]) - self._sequence) & 0xFFFFFFFF < 1 << 31

    def _wait_for(self, peer: int) -> None:
        for _ in range(self._patience):
            if self._reached(peer):
                return
            time.sleep(0)
        pause, last_look = SHORTEST_SLEEP, time.monotonic()
        while not self._reached(peer):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)
            if self.failed() >= 0 or time.monotonic() - last_look >= WATCH_SECONDS:
                if self._reached(peer):
                    return
                self._look_up(peer)
                last_look = time.monotonic()

    def _look_up(self, peer: int) -> None:
        try:
            self._watch(peer, self.failed())
        except BaseException:
            self.fail(self._rank)  # those that wait for this rank would wait forever
            raise

    def _open(self, signature: bytes, value: int = 0) -> int:
        """The first round of a collective: compare signatures."""
        if self.failed() >= 0:
            self._look_up(self._rank)
        self._first = (self._sequence + 1) & 1
        own, text = self._blocks[self._rank], signature[8 : 8 + layout.MAX_TEXT]
        own["digest"][self._first] = np.frombuffer(signature[:8], np.uint64)[0]
        own["text"][self._first, : len(text)] = np.frombuffer(text, np.uint8)
        own["text_length"][self._first] = len(text)
        own["value"][self._first] = value
        self._meet()
        digests = self._blocks["digest"][:, self._first]
        strangers = np.flatnonzero(digests != digests[0])
        if len(strangers):
            self._turn += 1
            return int(strangers[0])
        return -1

    def _rounds(
        self,
        signature: bytes,
        total: int,
        chunk: int,
        write: Callable[[int, int], None],
        read: Callable[[int, int], None],
    ) -> int:
        """For each chunk of ``total``: ``write(start, stop)``, one round, ``read(start, stop)``."""
        with _Turn(self._busy):
            for start in range(0, max(total, 1), chunk):
                stop = min(start + chunk, total)
                write(start, stop)
                if start == 0:
                    stranger = self._open(signature)
                    if stranger >= 0:
                        return stranger
                else:
                    self._meet()
                read(start, stop)
                self._turn += 1
            return -1

    def text(self, rank: int) -> bytes:
        """What ``rank`` called, as it stood in the last signature."""
        length = int(self._blocks[rank]["text_length"][self._first])
        text: bytes = self._blocks[rank]["text"][self._first, :length].tobytes()
        return text

    def fail(self, culprit: int) -> None:
        """End all waiting, on all ranks and for good."""
        if not self._failure[0]:
            self._failure[0] = culprit + 1

    def failed(self) -> int:
        """The rank that ended everything, or -1."""
        return int(self._failure[0]) - 1

    # -- collectives --------------------------------------------------------------------------------------------------
    def barrier(self, signature: bytes) -> int:
        """One round without data."""
        values = self.exchange(signature, 0)
        return values if isinstance(values, int) else -1

    def exchange(self, signature: bytes, value: int) -> list[int] | int:
        """One round with a number of each rank."""
        with _Turn(self._busy):
            stranger = self._open(signature, value)
            if stranger >= 0:
                return stranger
            self._turn += 1
            return [int(block["value"][self._first]) for block in self._blocks]

    def allreduce(self, signature: bytes, element: int, how: int, array: NDArray[Any], out: NDArray[Any]) -> int:
        """Few bytes: every rank combines everything. Else each combines a part, and hands out its result."""
        form, storage = Form(element, how), arrays.STORAGE[element]
        source, target = _flat(array, storage), _flat(out, storage)
        reduce = self._reduce_whole if source.nbytes <= MAX_WHOLE_BYTES else self._reduce_parts
        return reduce(signature, form, source, target)

    def _reduce_whole(self, signature: bytes, form: Form, source: NDArray[Any], target: NDArray[Any]) -> int:
        def write(start: int, stop: int) -> None:
            self._slot(self._rank).view(source.dtype)[: stop - start] = source[start:stop]

        def read(start: int, stop: int) -> None:
            values = [self._slot(rank).view(source.dtype)[: stop - start] for rank in range(self._size)]
            arrays.combine_elements(form, values, target[start:stop])

        return self._rounds(signature, source.size, self._slot_bytes // source.itemsize, write, read)

    def _reduce_parts(self, signature: bytes, form: Form, source: NDArray[Any], target: NDArray[Any]) -> int:
        """While a rank combines its part of chunk k, it gives its values of k + 1 and takes the results of k - 1.

        In its own slot a rank has no use for its own values, so there its result lies.
        """
        share = self._slot_bytes // source.itemsize // self._size // 64 * 64
        chunk = share * self._size
        num_chunks = -(-source.size // chunk)
        first_turn = self._turn

        def part(k: int, rank: int) -> slice:
            start, stop = _part(min(chunk, source.size - k * chunk), rank, self._size)
            return slice(k * chunk + start, k * chunk + stop)

        def place(k: int, of: int, rank: int) -> NDArray[Any]:
            """Where the slot of rank ``of`` holds what belongs to the part of ``rank``."""
            span = part(k, rank)
            slot: NDArray[Any] = self._slots[of, (first_turn + k) & 1].view(source.dtype)
            return slot[rank * share : rank * share + span.stop - span.start]

        def give(k: int) -> None:
            for rank in self._peers():
                place(k, self._rank, rank)[:] = source[part(k, rank)]

        def combine(k: int) -> None:
            own = part(k, self._rank)
            values = [place(k, rank, self._rank) for rank in range(self._size)]
            values[self._rank] = source[own].copy()
            arrays.combine_elements(form, values, target[own])
            place(k, self._rank, self._rank)[:] = target[own]

        def take(k: int) -> None:
            for rank in self._peers():
                target[part(k, rank)] = place(k, rank, rank)

        with _Turn(self._busy):
            give(0)
            stranger = self._open(signature)
            if stranger >= 0:
                return stranger
            for k in range(num_chunks + 1):
                if k + 1 < num_chunks:
                    give(k + 1)
                if k < num_chunks:
                    combine(k)
                if k > 0:
                    take(k - 1)
                if k < num_chunks:
                    self._meet()
            self._turn = first_turn + num_chunks
            return -1

    def _peers(self) -> list[int]:
        return [rank for rank in range(self._size) if rank != self._rank]

    def broadcast(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], root: int) -> int:
        """Through the root's slots."""
        source, target = _flat(array, np.uint8), _flat(out, np.uint8)

        def write(start: int, stop: int) -> None:
            if self._rank == root:
                self._slot(root)[: stop - start] = source[start:stop]

        def read(start: int, stop: int) -> None:
            target[start:stop] = source[start:stop] if self._rank == root else self._slot(root)[: stop - start]

        return self._rounds(signature, source.size, self._slot_bytes, write, read)

    def allgather(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], sizes: Sequence[int]) -> int:
        """Through all slots, as many rounds as the longest needs."""
        source, target = _flat(array, np.uint8), _flat(out, np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)])

        def write(start: int, stop: int) -> None:
            piece = source[start:stop]
            self._slot(self._rank)[: piece.size] = piece

        def read(start: int, stop: int) -> None:
            for rank, size in enumerate(sizes):
                length = max(0, min(stop, size) - start)
                target[starts[rank] + start :][:length] = self._slot(rank)[:length]

        return self._rounds(signature, max(sizes), self._slot_bytes, write, read)

    def reduce_scatter(
        self, signature: bytes, element: int, how: int, array: NDArray[Any], out: NDArray[Any], counts: Sequence[int]
    ) -> int:
        """Every slot holds a piece for each rank, which combines its pieces."""
        form, storage = Form(element, how), arrays.STORAGE[element]
        source, target = _flat(array, storage), _flat(out, storage)
        starts = np.concatenate([[0], np.cumsum(counts)])
        share = self._slot_bytes // self._size // 64 * 64 // storage.itemsize

        def piece(rank: int, to: int, length: int) -> NDArray[Any]:
            return self._slot(rank).view(storage)[to * share : to * share + length]

        def write(start: int, stop: int) -> None:
            for to, count in enumerate(counts):
                length = max(0, min(stop, count) - start)
                piece(self._rank, to, length)[:] = source[starts[to] + start :][:length]

        def read(start: int, stop: int) -> None:
            length = max(0, min(stop, counts[self._rank]) - start)
            pieces = [piece(rank, self._rank, length) for rank in range(self._size)]
            arrays.combine_elements(form, pieces, target[start : start + length])

        return self._rounds(signature, max(counts), share, write, read)

    def alltoall(self, signature: bytes, array: NDArray[Any], out: NDArray[Any], sizes: Sequence[int]) -> int:
        """Every slot holds a piece for each rank."""
        source, target = _flat(array, np.uint8), _flat(out, np.uint8)
        matrix = np.reshape(sizes, (self._size, self._size))
        sends = np.concatenate([[0], np.cumsum(matrix[self._rank])])
        receives = np.concatenate([[0], np.cumsum(matrix[:, self._rank])])
        share = self._slot_bytes // self._size // 64 * 64

        def write(start: int, stop: int) -> None:
            for to in range(self._size):
                length = max(0, min(stop, int(matrix[self._rank, to])) - start)
                self._slot(self._rank)[to * share :][:length] = source[sends[to] + start :][:length]

        def read(start: int, stop: int) -> None:
            for rank in range(self._size):
                length = max(0, min(stop, int(matrix[rank, self._rank])) - start)
                target[receives[rank] + start :][:length] = self._slot(rank)[self._rank * share :][:length]

        return self._rounds(signature, int(matrix.max()), share, write, read)


@final
class _Turn:
    """One collective at a time."""

    def __init__(self, busy: threading.Lock) -> None:
        self._busy = busy

    def __enter__(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise CommunicationError(
                "two threads called collectives of one communicator at the same time: "
                "let one thread call, and start() the others"
            )

    def __exit__(self, *_: object) -> None:
        self._busy.release()


def _part(count: int, rank: int, size: int) -> tuple[int, int]:
    """A rank's part of a chunk: a multiple of 64 elements, so that no cache line is written by two ranks."""
    share = (count + 64 * size - 1) // (64 * size) * 64
    return min(count, share * rank), min(count, share * (rank + 1))


def _flat(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return array.reshape(-1).view(dtype)
