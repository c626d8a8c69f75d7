"""The timelines of all ranks together: seconds per phase, and a trace that Perfetto and chrome://tracing show."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.io.disk import write_whole
from ringlet.timeline import PHASES, RecordedTimeline

_NUM_SAMPLES = 20
"""Clock readings of which the closest counts."""


@dataclass(frozen=True)
class RankTimeline:
    """What one rank did: phase ``phases[i]`` from ``starts[i]`` to ``starts[i + 1]``, in rank 0's nanoseconds."""

    rank: int
    host: str
    process: int
    phases: NDArray[np.int64]
    starts: NDArray[np.int64]

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """(phase, start, nanoseconds), neighbours of one phase joined."""
        changes = np.flatnonzero(np.diff(self.phases, prepend=-1))
        starts = [*self.starts[changes].tolist(), int(self.starts[-1])] if len(self.starts) else []
        for place, start, end in zip(changes.tolist(), starts, starts[1:], strict=False):
            yield PHASES[int(self.phases[place])], start, end - start


def gather_timelines(timeline: RecordedTimeline, comm: Communicator) -> list[RankTimeline]:
    """The timelines of all ranks on one clock, on every rank; every rank must call."""
    timeline.mark("other")
    offset = _clock_offset(comm)
    lengths = comm.allgather(np.array([len(timeline.starts)], np.int64))
    phases = comm.allgather(np.array(timeline.phases, np.int64))
    starts = comm.allgather(np.array(timeline.starts, np.int64) - offset)
    own_name = json.dumps([socket.gethostname(), os.getpid()]).encode()
    names = [json.loads(text) for text in comm.allgather_bytes(own_name)]
    ends = np.cumsum(lengths)
    parts = [slice(int(end - length), int(end)) for end, length in zip(ends, lengths, strict=True)]
    return [
        RankTimeline(rank, str(host), int(process), phases[part], starts[part])
        for rank, (part, (host, process)) in enumerate(zip(parts, names, strict=True))
    ]


def phase_seconds(timeline: RankTimeline) -> dict[str, float]:
    """How long each phase took in all."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for phase, _, duration in timeline.spans():
        seconds[phase] += duration * 1e-9
    return seconds


def write_trace(path: Path, timelines: Sequence[RankTimeline]) -> None:
    """A trace file in the format of Chrome's tracing; it appears completely or not at all."""
    begin = min((int(timeline.starts[0]) for timeline in timelines), default=0)
    events: list[dict[str, Any]] = []
    for timeline in timelines:
        title = f"rank {timeline.rank} ({timeline.host}, process {timeline.process})"
        place = {"pid": timeline.rank, "tid": 0}
        events.append({"ph": "M", "name": "process_name", "args": {"name": title}, **place})
        events.append({"ph": "M", "name": "process_sort_index", "args": {"sort_index": timeline.rank}, **place})
        events += [
            {"ph": "X", "name": phase, "cat": "ringlet", "ts": (start - begin) / 1e3, "dur": duration / 1e3, **place}
            for phase, start, duration in timeline.spans()
        ]
    write_whole(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())


def _clock_offset(comm: Communicator) -> int:
    """How far this machine's clock is ahead of that of rank 0's machine; the ranks of a machine have one clock."""
    offset = np.zeros(1, np.int64)
    if comm.local_rank == 0:
        offset[0] = _offset_between(comm.cross)
    return int(comm.local.broadcast(offset)[0])


def _offset_between(machines: Communicator) -> int:
    """The closest of many readings: one is taken between two moments; the nearer they are, the better it is."""
    best, offset = None, 0
    for _ in range(_NUM_SAMPLES):
        machines.barrier()
        before = monotonic_ns()
        reference = int(machines.broadcast(np.array([monotonic_ns()], np.int64))[0])
        after = monotonic_ns()
        if best is None or after - before < best:
            best, offset = after - before, (before + after) // 2 - reference
    return 0 if machines.rank == 0 else offset
