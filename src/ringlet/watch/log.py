"""Follows an event log: gives whole lines as they are written, and notices when the log was cut or replaced."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

SLICE_BYTES = 4 << 20
"""So much is read at a time, so that a page of a large log fills step by step."""
MAX_LINE_BYTES = 16 << 20
_MARK_BYTES = 256


@dataclass(frozen=True)
class News:
    """What one look at the log gave."""

    records: list[Mapping[str, Any]]
    """New events; lines that are none are left out."""
    started_anew: bool = False
    """Whether everything read before is void: the log was cut or replaced."""
    is_behind: bool = False
    """Whether there is more to read at once."""
    num_broken: int = 0
    """Lines that are no events."""


@final
class LogFollower:
    """Reads a growing file; holds no file open between two looks."""

    def __init__(self, path: Path, *, slice_bytes: int = SLICE_BYTES, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._path, self._slice_bytes, self._max_line_bytes = path, slice_bytes, max_line_bytes
        self.num_bytes = 0
        """How long the log is."""
        self._begin()

    def _begin(self) -> None:
        self.position = 0
        """How much of it was read."""
        self._mark = b""
        """The last bytes that were read: if others stand there now, the log was cut and has grown again."""
        self._rest = b""
        self._is_skipping = False

    def look(self) -> News:
        """Read on. A log that is not there (yet) gives nothing."""
        try:
            with self._path.open("rb") as file:
                self.num_bytes = os.fstat(file.fileno()).st_size
                started_anew = self._was_cut(file.fileno())
                if started_anew:
                    self._begin()
                file.seek(self.position)
                data = file.read(self._slice_bytes)
        except OSError:
            return News([])
        self.position += len(data)
        self._mark = (self._mark + data)[-_MARK_BYTES:]
        records, num_broken = self._parse(data)
        return News(records, started_anew, self.position < self.num_bytes, num_broken)

    def _was_cut(self, descriptor: int) -> bool:
        start = self.position - len(self._mark)
        return self.num_bytes < self.position or os.pread(descriptor, len(self._mark), start) != self._mark

    def _parse(self, data: bytes) -> tuple[list[Mapping[str, Any]], int]:
        """Events of all lines that end within ``data``; the beginning of the next line is kept."""
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._is_skipping:
            lines, self._is_skipping = lines[1:], False
        records, num_broken = [], 0
        for line in lines:
            record = parse_event(line)
            if record is not None:
                records.append(record)
            elif line.strip():
                num_broken += 1
        if len(rest) > self._max_line_bytes:
            num_broken += not self._is_skipping
            self._is_skipping, rest = True, b""
        self._rest = b"" if self._is_skipping else rest
        return records, num_broken


def parse_event(line: bytes) -> Mapping[str, Any] | None:
    """The event of one line, or None: files are hostile until read."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("event"), str) else None
