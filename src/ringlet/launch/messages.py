"""What ranks report to their launcher, lines of JSON beside what they print, and the frames in which both travel.

mpiexec forwards pieces of the output of many ranks in any order, cut wherever its reads end. Frames of one fixed size,
each written at once, survive that: 512 divides every buffer that launchers read with (1,024 bytes in Slurm, 4,096 in
Open MPI, 65,536 in Hydra), and a pipe never holds a part of such a write. What lies between frames is mpiexec's own.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

from ringlet.forks import Owner

REPORT_VARIABLE = "RINGLET_REPORT"
"""Number of the file descriptor on which a rank reports to the process that started it."""
STDOUT, STDERR, MESSAGES = 1, 2, 3
"""The streams of a rank."""
MAX_TEXT = 200_000
"""Longest text in a message."""
_MAX_LINE = 4 << 20


def started(pid: int, host: str) -> bytes:
    """The rank runs."""
    return _line(event="started", pid=pid, host=host)


def failed(text: str, exit_code: int, *, secondary: bool = False) -> bytes:
    """The rank cannot go on; ``secondary``: perhaps only because another rank failed or left."""
    return _line(event="failed", text=text[:MAX_TEXT], exit_code=exit_code, secondary=secondary)


def leaving(exit_code: int) -> bytes:
    """The rank is about to end on purpose with a code other than 0."""
    return _line(event="leaving", exit_code=exit_code)


def ended(return_code: int, *, out_of_memory: bool = False) -> bytes:
    """The rank's process ended: with its exit code or, negative, by a signal."""
    return _line(event="ended", return_code=return_code, out_of_memory=out_of_memory)


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


class MessageReader:
    """Cuts a stream into messages; what is none is skipped."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete by now."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._pending = self._pending[-_MAX_LINE:]
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                yield message


_to_launcher: int | None = None
_owner = Owner()
"""A copy of the rank must not speak for it."""


def connect_launcher() -> None:
    """Take over the file descriptor for messages that the launcher left; processes started later must not have it."""
    global _to_launcher, _owner
    _owner = Owner()
    text = os.environ.pop(REPORT_VARIABLE, "")
    if text.isascii() and text.isdecimal():
        _to_launcher = int(text)
        os.set_inheritable(_to_launcher, False)


def is_rank() -> bool:
    """Whether this process is a rank that a launcher of ours started and hears."""
    return _to_launcher is not None and _owner.is_here


def report(message: bytes) -> bool:
    """Tell the launcher; False if there is none or it does not listen any more."""
    return _to_launcher is not None and _owner.is_here and send(_to_launcher, message)


def send(descriptor: int, message: bytes) -> bool:
    """Write a message; False if no one listens any more."""
    try:
        while message:
            message = message[os.write(descriptor, message) :]
    except OSError:
        return False
    return True


# -- frames ------------------------------------------------------------------------------------------------------------
FRAME_BYTES = 512
_HEADER = struct.Struct(">B16sIBH")
_BEGIN = 0x1E
_ROOM = FRAME_BYTES - _HEADER.size
TOKEN_BYTES = 16


def pack(token: bytes, rank: int, stream: int, data: bytes) -> Iterator[bytes]:
    """The frames that carry ``data``; ``token`` (16 bytes) tells frames of this job from anything else."""
    for start in range(0, len(data), _ROOM):
        part = data[start : start + _ROOM]
        yield (_HEADER.pack(_BEGIN, token, rank, stream, len(part)) + part).ljust(FRAME_BYTES, b"\n")


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
            if len(self._pending) < FRAME_BYTES:
                return
            _, _, rank, stream, length = _HEADER.unpack_from(self._pending)
            payload = self._pending[_HEADER.size : _HEADER.size + min(length, _ROOM)]
            self._pending = self._pending[FRAME_BYTES:]
            yield rank, stream, payload

    def _drop(self, count: int) -> None:
        self.noise += self._pending[:count]
        self._pending = self._pending[count:]

    def close(self) -> None:
        """Nothing more comes."""
        self._drop(len(self._pending))
