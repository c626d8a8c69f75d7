"""What ranks print and report, packed so that mpiexec can carry all of it over its one standard output.

mpiexec forwards pieces of the output of many ranks in any order, cut wherever its reads end. Frames of one fixed
size, each written at once, survive that: 512 divides every buffer that launchers read with (1,024 bytes in Slurm,
4,096 in Open MPI, 65,536 in Hydra), and a pipe never holds a part of such a write. What lies between frames is
mpiexec's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

SIZE = 512
STDOUT, STDERR, MESSAGES = 1, 2, 3
"""The streams of a rank. Messages are lines of JSON; see ``messages``."""

_HEADER = struct.Struct(">B16sIBH")
_BEGIN = 0x1E
_ROOM = SIZE - _HEADER.size
TOKEN_BYTES = 16


def pack(token: bytes, rank: int, stream: int, data: bytes) -> Iterator[bytes]:
    """The frames that carry ``data``; ``token`` (16 bytes) tells frames of this job from anything else."""
    for start in range(0, len(data), _ROOM):
        part = data[start : start + _ROOM]
        yield (_HEADER.pack(_BEGIN, token, rank, stream, len(part)) + part).ljust(SIZE, b"\n")


class Unpacker:
    """Finds the frames in what mpiexec wrote; the rest collects in :attr:`noise`."""

    def __init__(self, token: bytes) -> None:
        self._mark = bytes([_BEGIN]) + token
        self._pending = b""
        self.noise = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(rank, stream, data) of every frame that is complete by now."""
        self._pending += data
        while True:
            start = self._pending.find(self._mark)
            if start < 0:
                keep = min(len(self._pending), len(self._mark) - 1)
                self._drop(len(self._pending) - keep)
                return
            self._drop(start)
            if len(self._pending) < SIZE:
                return
            _, _, rank, stream, length = _HEADER.unpack_from(self._pending)
            payload = self._pending[_HEADER.size : _HEADER.size + min(length, _ROOM)]
            self._pending = self._pending[SIZE:]
            yield rank, stream, payload

    def _drop(self, count: int) -> None:
        self.noise += self._pending[:count]
        self._pending = self._pending[count:]

    def close(self) -> None:
        """Nothing more comes."""
        self._drop(len(self._pending))
