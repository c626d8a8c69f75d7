"""What people learn while collectives run: who is missing, on the error output, and when what ran, in a timeline."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, final

from ringlet.errors import UsageError
from ringlet.named.submissions import Handle, Key
from ringlet.named.table import Table

STALL_WARNING = "RINGLET_STALL_WARNING_SECONDS"
STALL_ERROR = "RINGLET_STALL_ERROR_SECONDS"
TRACE = "RINGLET_TRACE"
"""A file that takes the timeline from the beginning on."""
MARK_CYCLES = "RINGLET_TRACE_CYCLES"
"""Whether that timeline marks rounds; anything but nothing means that it does."""
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True)
class Patience:
    """How long ranks wait for each other, in seconds, equal on all of them; 0 means forever."""

    stall_warning: float = 60.0
    """Until a submission that other ranks lack is reported."""
    stall_error: float = 600.0
    """Until it fails."""

    @property
    def heartbeat(self) -> float:
        """How often a rank that submits nothing takes part in a round, so that the others learn what is missing."""
        limits = [limit / 4 for limit in (self.stall_warning, self.stall_error) if limit]
        return min([HEARTBEAT_SECONDS, *limits])


def patience_from_environment() -> Patience:
    """Defaults where a variable is not set."""
    return Patience(_seconds(STALL_WARNING, Patience.stall_warning), _seconds(STALL_ERROR, Patience.stall_error))


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{variable}={text!r} makes no sense: expected a number of seconds, or 0 for never")
    return seconds


@final
class StallWatch:
    """Looks at the unfinished submissions of the rank ``rank`` among the global ``ranks``."""

    def __init__(self, table: Table, ranks: Sequence[int], rank: int, patience: Patience) -> None:
        self._table = table
        self._ranks = list(ranks)
        self._rank = rank
        self._patience = patience
        self._next_look = monotonic() + patience.heartbeat

    def look(self, in_flight: dict[Key, Handle]) -> list[tuple[Key, str]]:
        """Warn of what has waited for long; give what has waited too long, with the reason. Cheap: seldom looks.

        Other threads may submit meanwhile.
        """
        now = monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + self._patience.heartbeat
        expired = []
        for handle in list(in_flight.values()):
            entry = self._table.waiting.get(handle.key)
            if entry is None or self._rank not in entry.signatures:
                continue  # a join, or not announced yet
            waited = now - handle.submitted
            submitted = self._names(entry.signatures)
            missing = self._names(self._table.missing(entry))
            if self._patience.stall_error and waited >= self._patience.stall_error:
                why = f"rank {missing} did not submit it within {self._patience.stall_error:g} s, rank {submitted} did"
                expired.append((handle.key, why))
            elif self._patience.stall_warning and waited >= self._patience.stall_warning and not handle.warned:
                handle.warned = True
                if self._rank == min(entry.signatures):  # one report is enough
                    _warn(
                        f"{entry.signature.kind} '{handle.name}' has waited {waited:.1f} s for rank {missing}; "
                        f"it was submitted by rank {submitted}. Every rank of {self._ranks} must submit it, or join"
                    )
        return expired

    def report_silence(self, handles: Iterable[Handle], seconds: float) -> None:
        """A round has been under way for so long: some rank does not even say that it has nothing."""
        if not self._patience.stall_warning or seconds < self._patience.stall_warning:
            return
        silent = [handle for handle in handles if not handle.warned]
        for handle in silent:
            handle.warned = True
        if silent:
            names = ", ".join(f"'{handle.name}'" for handle in silent[:8])
            _warn(
                f"rank {self._ranks[self._rank]} waits for {names}, but some rank has been silent for {seconds:.1f} s"
            )

    def _names(self, ranks: Iterable[int]) -> str:
        return ", ".join(str(self._ranks[rank]) for rank in sorted(ranks))


def _warn(text: str) -> None:
    sys.stderr.write(f"ringlet: warning: {text}\n")
    sys.stderr.flush()


@final
class Trace:
    """A timeline for chrome://tracing and Perfetto: how long each collective waited, and how long it ran.

    Writes one event per line as it happens; a file that was cut off can be shown too.
    """

    def __init__(self, path: Path, rank: int, *, mark_cycles: bool = False) -> None:
        """``mark_cycles``: the rounds in which ranks told each other something new are marked too."""
        self._rank = rank
        self._mark_cycles = mark_cycles
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise UsageError(f"the timeline {path} cannot be written: {error.strerror}") from error
        self._file.write(b"[")
        self._first = True
        began = round((time() - monotonic()) * 1e6)
        self._write({"ph": "M", "name": "trace_began", "args": {"start_time_since_epoch_in_micros": began}})

    def mark_cycle(self, began: float) -> None:
        """A round began, if rounds are to be marked."""
        with self._lock:
            if self._mark_cycles and not self._file.closed:
                self._write({"ph": "i", "s": "p", "name": "CYCLE_START", "tid": 0, "ts": round(began * 1e6, 3)})

    def add(self, name: str, stem: str, kind: str, submitted: float, started: float, ended: float) -> None:
        """A collective: times are ``monotonic`` seconds. Those whose names differ by a number share a row."""
        with self._lock:
            if self._file.closed:
                return
            row = self._rows.get(stem)
            if row is None:
                row = self._rows[stem] = len(self._rows)
                label = stem if stem.startswith(kind) else f"{kind}.{stem}"
                self._write({"ph": "M", "name": "thread_name", "tid": row, "args": {"name": label.rstrip(".")}})
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
