"""What lies in a run directory: its growing event log, values of that log, checkpoints and pictures of validation.

Nothing in a file is taken for what it says it is.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ringlet.errors import UsageError
from ringlet.training.events import number, whole
from ringlet.training.run_directory import CHECKPOINTS, EVENTS, PICTURES

SLICE_BYTES = 4 << 20
"""So much is read at a time, so that a page of a large log fills step by step."""
MAX_LINE_BYTES = 16 << 20
_MARK_BYTES = 256
MAX_LISTED = 500
MAX_PICTURE_BYTES = 16 << 20
_CHECKPOINT = re.compile(r"step-(\d{1,15})")
_PICTURE = re.compile(r"epoch-(\d{1,9})\.png")
_PNG = b"\x89PNG\r\n\x1a\n"
MAX_TEXT = 400


def find_run(path: Path) -> Path:
    """The run directory that a user means: itself or its log."""
    folder = path.parent if path.name == EVENTS and path.is_file() else path
    if (folder / EVENTS).is_file():
        return folder
    if not folder.is_dir():
        raise UsageError(f"'{path}' is no run directory: it does not exist. Give the folder that a run has written")
    runs = newest_runs(folder)
    hint = f" Did you mean '{runs[0]}'?" if runs else " Give the folder that a run has written"
    raise UsageError(f"'{path}' is no run directory: it has no {EVENTS}.{hint}")


def newest_runs(folder: Path) -> list[Path]:
    """The run directories right below ``folder``, the one that was written to last first."""
    try:
        logs = [(log.stat().st_mtime, log.parent) for log in folder.glob(f"*/{EVENTS}")]
    except OSError:
        return []
    return [path for _, path in sorted(logs, reverse=True)]


def checkpoints(run: Path) -> list[dict[str, Any]]:
    """Step, time and size of the newest checkpoints, in order."""
    found = []
    for step, path in _numbered(run / CHECKPOINTS, _CHECKPOINT):
        try:
            num_bytes = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
            found.append({"step": step, "time": path.stat().st_mtime, "bytes": num_bytes})
        except OSError:
            continue  # it was removed meanwhile
    return found


def pictures(run: Path) -> list[int]:
    """The epochs of which there are pictures."""
    return [epoch for epoch, _ in _numbered(run / PICTURES, _PICTURE)]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    try:
        matches = [(pattern.fullmatch(entry.name), entry.path) for entry in os.scandir(folder)]
    except OSError:
        return []
    return sorted((int(match[1]), Path(path)) for match, path in matches if match)[-MAX_LISTED:]


def read_picture(run: Path, epoch: int) -> bytes | None:
    """A picture of validation; None if there is none, or something else under its name."""
    found = dict(_numbered(run / PICTURES, _PICTURE)).get(epoch)
    return None if found is None else read_png(found)


def read_png(path: Path) -> bytes | None:
    """A PNG file; None if there is none, or something else under its name."""
    data = read_bounded(path, MAX_PICTURE_BYTES)
    return data if data is not None and data.startswith(_PNG) else None


def read_bounded(path: Path, max_bytes: int) -> bytes | None:
    """The content of a plain file of at most so many bytes; None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(max_bytes + 1)
    except OSError:
        return None
    return data if len(data) <= max_bytes else None


@dataclass(frozen=True)
class News:
    """What one look at the log gave."""

    records: list[Mapping[str, Any]]
    """New events; lines that are none are left out."""
    started_over: bool = False
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
                started_over = self._was_cut(file.fileno())
                if started_over:
                    self._begin()
                file.seek(self.position)
                data = file.read(self._slice_bytes)
        except OSError:
            return News([])
        self.position += len(data)
        self._mark = (self._mark + data)[-_MARK_BYTES:]
        records, num_broken = self._parse(data)
        return News(records, started_over, self.position < self.num_bytes, num_broken)

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


def count(value: Any) -> int:
    """A number of things; 0 for anything else."""
    return whole(value) or 0


def text(value: Any, limit: int = MAX_TEXT) -> str:
    """A text that is not too long; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= limit else f"{value[: limit - 1]}…"


def table(value: Any) -> Mapping[str, Any]:
    """A mapping; empty for anything else."""
    return value if isinstance(value, dict) else {}


def metrics_text(value: Any) -> str:
    """``loss 0.1234, accuracy 0.9712``."""
    return ", ".join(f"{text(name, 40)} {_digits(item)}" for name, item in list(table(value).items())[:20])


def _digits(value: Any) -> str:
    found = number(value)
    return text(value, 20) if found is None else f"{found:.4g}"
