"""Where the output of ranks goes: through to the launcher's own, with or without the rank before each line, or to
files.

What rank 0 writes passes byte by byte in ``plain`` output, so its progress bars stay whole. Lines of the others are
passed when they are complete, as they would look when finished: of a bar that redraws itself, the last state.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Protocol

from ringlet.errors import UsageError
from ringlet.io.disk import Appender, Saving
from ringlet.launch.messages import STDERR, STDOUT
from ringlet.terminal import TERMINAL_VARIABLE, terminal_text

_MOVEMENT = re.compile(rb"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[78=>]")
"""Escape codes that move the cursor or change the screen; colours stay."""
_LONGEST_LINE = 1 << 16
_PATIENCE_SECONDS = 0.3
"""How long lines of other ranks wait for rank 0 to finish the line it has begun."""
_ERASE_LINE = b"\r\x1b[2K"

Write = Callable[[int, bytes], None]
"""Takes a stream (1 or 2) and bytes."""


class Output(Protocol):
    """Takes what ranks write."""

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """``data`` came from a rank."""

    def tick(self) -> None:
        """Called several times a second: time passes."""

    def say(self, text: str) -> None:
        """A line or more of the launcher's own, on the error output."""

    def close(self) -> None:
        """Nothing more comes; unfinished lines are written."""


def create_output(kind: str, size: int, write: Write, *, terminal: bool = False, append: bool = False) -> Output:
    """``plain``, ``prefix``, or else a folder. ``terminal``: the error output is one; ``append``: to existing files."""
    if kind in ("plain", "prefix"):
        return Merged(write, size, raw_rank=0 if kind == "plain" else None, terminal=terminal)
    return Files(Path(kind), size, write, append=append)


class Merged:
    """All ranks to the launcher's own output."""

    def __init__(self, write: Write, size: int, *, raw_rank: int | None, terminal: bool) -> None:
        self._write = write
        self._raw_rank = raw_rank
        self._terminal = terminal
        self._width = len(str(size - 1))
        self._partial: dict[tuple[int, int], bytes] = {}
        self._open = {STDOUT: False, STDERR: False}
        self._waiting = {STDOUT: b"", STDERR: b""}
        self._wait_until = {STDOUT: 0.0, STDERR: 0.0}

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """Raw for rank 0 in plain output, else as lines."""
        if rank == self._raw_rank:
            self._write(stream, data)
            self._open[stream] = not data.endswith(b"\n")
            if not self._open[stream]:
                self._release(stream)
            return
        *lines, rest = (self._partial.pop((rank, stream), b"") + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        if rest:
            self._partial[rank, stream] = rest
        self._write_lines(rank, stream, lines)

    def _write_lines(self, rank: int, stream: int, lines: list[bytes]) -> None:
        prefix = f"[rank {rank:>{self._width}}] ".encode()
        finished = [prefix + line + b"\n" for line in map(_last_state, lines) if line is not None]
        if not finished:
            return
        if not self._waiting[stream]:
            self._wait_until[stream] = monotonic() + _PATIENCE_SECONDS
        self._waiting[stream] += b"".join(finished)
        if not self._open[stream]:
            self._release(stream)

    def _release(self, stream: int) -> None:
        """Write the lines that waited for rank 0 to finish its own."""
        data, self._waiting[stream] = self._waiting[stream], b""
        if data:
            self._write(stream, self._separator(stream) + data)

    def tick(self) -> None:
        """Lines that have waited long enough go out even if rank 0 has not finished its own."""
        for stream in (STDOUT, STDERR):
            if monotonic() >= self._wait_until[stream]:
                self._release(stream)

    def _separator(self, stream: int) -> bytes:
        """What ends a line that rank 0 has begun: a bar on a terminal is wiped, since it will be drawn again."""
        if not self._open[stream]:
            return b""
        self._open[stream] = False
        return _ERASE_LINE if self._terminal and stream == STDERR else b"\n"

    def say(self, text: str) -> None:
        """As it is, after what came before."""
        self._release(STDOUT)
        self._release(STDERR)
        self._write(STDERR, self._separator(STDERR) + text.rstrip("\n").encode() + b"\n")

    def close(self) -> None:
        """Write the beginnings of lines that never ended."""
        for (rank, stream), rest in self._partial.items():
            self._write_lines(rank, stream, [rest])
        self._partial.clear()
        self._release(STDOUT)
        self._release(STDERR)


def _last_state(line: bytes) -> bytes | None:
    """How a line looks once it is finished; None if nothing but drawing was in it."""
    text = _MOVEMENT.sub(b"", line)
    visible = text.rstrip(b"\r").rpartition(b"\r")[2]
    return None if line and not visible else visible


class Files:
    """One file per rank and stream: ``rank-3.out`` and ``rank-3.err``.

    What a disk does not take is left out, which the launcher says at once and the file as soon as it can.
    """

    def __init__(self, folder: Path, size: int, write: Write, *, append: bool = False) -> None:
        self._write = write
        self._saving = Saving(self.say)
        self._files: dict[tuple[int, int], Appender] = {}
        self._num_lost: dict[tuple[int, int], int] = {}
        width = len(str(size - 1))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for rank in range(size):
                for stream, ending in ((STDOUT, "out"), (STDERR, "err")):
                    path = folder / f"rank-{rank:0{width}}.{ending}"
                    self._files[rank, stream] = Appender(path, afresh=not append)
        except OSError as error:
            self.close()
            raise UsageError(f"output folder '{folder}' cannot be used: {error.strerror}") from error

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """Append."""
        place = rank, stream
        name = f"output in {self._files[place].path.name}"
        if not self._saving.attempt(name, lambda: self._append(place, data)):
            self._num_lost[place] = self._num_lost.get(place, 0) + len(data)

    def _append(self, place: tuple[int, int], data: bytes) -> None:
        num_lost = self._num_lost.get(place, 0)
        gap = f"\n[{num_lost:,} bytes could not be written here]\n".encode() if num_lost else b""
        self._files[place].append(gap + data)
        self._num_lost[place] = 0

    def tick(self) -> None:
        """Nothing waits here."""

    def say(self, text: str) -> None:
        """To the launcher's own error output."""
        self._write(STDERR, text.rstrip("\n").encode() + b"\n")

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


def terminal_environment(output: str) -> dict[str, str]:
    """``RINGLET_TERMINAL=120x40+color`` if rank 0's error output will reach a terminal as it is, else nothing."""
    try:
        told = terminal_text(sys.stderr.fileno()) if output == "plain" else None
    except (AttributeError, OSError, ValueError):
        return {}
    return {} if told is None else {TERMINAL_VARIABLE: told}
