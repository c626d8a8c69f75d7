"""A record of named operations that chrome://tracing and Perfetto show: how long each waited and how long it ran."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, final

from ringlet.errors import UsageError


@final
class Trace:
    """Writes one event per line while it goes; also a file that was cut off can be shown."""

    def __init__(self, path: Path, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise UsageError(f"the timeline {path} cannot be written: {error.strerror}") from error
        self._file.write(b"[")
        self._first = True

    def add(self, name: str, stem: str, kind: str, submitted: float, started: float, ended: float) -> None:
        """An operation: times are ``monotonic`` seconds. Operations whose names differ by a number share a row."""
        with self._lock:
            if self._file.closed:
                return
            row = self._rows.get(stem)
            if row is None:
                row = self._rows[stem] = len(self._rows)
                self._write({"ph": "M", "name": "thread_name", "tid": row, "args": {"name": stem.rstrip(".")}})
            phases = ((f"NEGOTIATE_{kind.upper()}", submitted, started), (kind.upper(), started, ended))
            for phase, begin, end in phases:
                times = {"ts": round(begin * 1e6, 3), "dur": round((end - begin) * 1e6, 3)}
                self._write({"ph": "X", "name": phase, "tid": row, **times, "args": {"name": name}})

    def close(self) -> None:
        """End the file."""
        with self._lock:
            if not self._file.closed:
                self._file.write(b"\n]\n")
                self._file.close()

    def _write(self, event: dict[str, Any]) -> None:
        text = ("\n" if self._first else ",\n") + json.dumps({"pid": self._rank, **event})
        self._file.write(text.encode())
        self._first = False
