"""What the ranks of a machine tell each other about their progress, in memory that all of them see.

Every rank writes its own row and reads all of them, at any time and without waiting: a rank that hangs cannot answer
questions, but what it wrote last remains. Below the board: what can be seen of a process from inside (the stacks of its
threads) and from outside (whether it runs at all).
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.channel.fence import lock_fence, memory_fence
from ringlet.comm.channel.layout import process_namespace
from ringlet.comm.contract import Communicator

MAX_PLACE = 240
MAX_STACKS = 24_000
"""Bytes of a rank's stacks; of more the rest is cut off."""
PRESENCE = ("has not begun training", "here", "has left training")
_STATES = {"T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}
_COMMUNICATION = "ringlet.comm."
MAX_FRAMES = 60

ROW = np.dtype(
    [
        ("heartbeat", "f8"),  # when the rank last wrote its row, seconds of the machine's monotonic clock
        ("deadline", "f8"),  # when the rank will have made no progress for too long
        ("step", "i8"),
        ("rank", "i8"),
        ("namespace", "u8"),
        ("process", "i8"),
        ("here", "i4"),  # a place in PRESENCE
        ("waiting", "i4"),  # 1 in a collective
        ("stalled", "i4"),
        ("reporting", "i4"),
        ("answers_signal", "i4"),
        ("place_length", "i4"),
        ("stacks_length", "i4"),
        ("place", "u1", (MAX_PLACE,)),
        ("stacks", "u1", (MAX_STACKS,)),
    ],
    align=True,
)


@dataclass(frozen=True)
class Status:
    """What is known of a rank."""

    rank: int
    step: int
    process: int
    presence: str
    """``here``, or in words whether it has not begun or has left."""
    is_waiting: bool
    place: str
    silence: float
    """Seconds since it last wrote."""
    state: str
    """``running``, ``stopped``, ``ended``, or ``unknown`` where its process cannot be looked at."""


@final
class Board:
    """The rows of all ranks of this machine; every rank of the machine must make one."""

    def __init__(self, comm: Communicator) -> None:
        memory = comm.shared_array((comm.local_size, ROW.itemsize), np.uint8)
        self._rows: NDArray[Any] = memory.view(ROW).reshape(-1)
        self._order_memory = memory_fence() if comm.local_size > 1 else lock_fence()
        self._place = comm.local_rank
        self._own = self._rows[self._place]
        self._namespace = process_namespace()
        self._own["rank"] = comm.rank
        self._own["namespace"] = self._namespace
        self._own["process"] = os.getpid()
        self.step = self._rows["step"][self._place : self._place + 1].data
        """Where this rank writes its step: one element, without the detours of NumPy."""

    def enter(self, now: float, deadline: float, answers_signal: bool) -> None:
        """From now on this rank counts."""
        self._own["stalled"] = self._own["reporting"] = self._own["stacks_length"] = 0
        self._own["answers_signal"] = answers_signal
        self._own["heartbeat"], self._own["deadline"] = now, deadline
        self._own["here"] = 1

    def leave(self) -> None:
        """No one needs to wait for this rank any more."""
        self._own["here"], self._own["deadline"] = 2, 0.0

    def post(self, now: float, deadline: float, waiting: bool, place: str) -> None:
        """This rank is alive and at ``place``."""
        text = place.encode()[:MAX_PLACE]
        self._own["place"][: len(text)] = np.frombuffer(text, np.uint8)
        self._own["place_length"], self._own["waiting"] = len(text), waiting
        self._own["heartbeat"], self._own["deadline"] = now, deadline

    def post_stacks(self, text: str) -> None:
        """What all threads of this rank are doing."""
        data = text.encode()[:MAX_STACKS]
        self._own["stacks"][: len(data)] = np.frombuffer(data, np.uint8)
        self._order_memory()
        self._own["stacks_length"] = len(data)

    def mark_stalled(self, stalled: bool) -> None:
        """Whether this rank thinks that it is time to end the job."""
        self._own["stalled"] = stalled

    def mark_reporting(self) -> None:
        """This rank tells the story; the others show their stacks."""
        self._own["reporting"] = 1

    @property
    def is_reported(self) -> bool:
        """Whether a rank is telling the story."""
        return bool(self._rows["reporting"].any())

    @property
    def deadline(self) -> float:
        """When the last rank of the machine will have made no progress for too long."""
        return float(self._rows["deadline"].max())

    @property
    def all_waiting(self) -> bool:
        """Whether every rank that has not left is in a collective."""
        return bool(self._rows["waiting"][self._rows["here"] == 1].all())

    def all_stalled(self, now: float, silence: float) -> bool:
        """Whether every rank that is here and was heard of within ``silence`` seconds thinks so."""
        rows = self._rows
        return bool(rows["stalled"][(rows["here"] == 1) & (rows["heartbeat"] >= now - silence)].all())

    def is_speaker(self, now: float, silence: float) -> bool:
        """Whether this rank is the first of those that stalled and have been heard of within ``silence`` seconds."""
        candidates = (self._rows["stalled"] == 1) & (self._rows["heartbeat"] >= now - silence)
        return bool(candidates[self._place] and not candidates[: self._place].any())

    def answers_signal(self, place: int) -> bool:
        """Whether the process of that rank of the machine shows its stacks when it gets the signal for it."""
        row = self._rows[place]
        return bool(row["answers_signal"]) and int(row["namespace"]) == self._namespace != 0

    def stacks(self, place: int) -> str | None:
        """The stacks of the machine's rank ``place``, if it has shown them."""
        row = self._rows[place]
        length = int(row["stacks_length"])
        self._order_memory()
        return row["stacks"][:length].tobytes().decode(errors="replace") if length else None

    def statuses(self, now: float) -> list[Status]:
        """What is known of every rank of the machine, in their order."""
        return [self._status(row, now) for row in self._rows]

    def _status(self, row: Any, now: float) -> Status:
        same = int(row["namespace"]) == self._namespace != 0
        return Status(
            rank=int(row["rank"]),
            step=int(row["step"]),
            process=int(row["process"]),
            presence=PRESENCE[int(row["here"])],
            is_waiting=bool(row["waiting"]),
            place=row["place"][: int(row["place_length"])].tobytes().decode(errors="replace"),
            silence=max(0.0, now - float(row["heartbeat"])),
            state=process_state(int(row["process"])) if same else "unknown",
        )


def process_state(process: int) -> str:
    """``running``, ``stopped``, ``ended``, or ``unknown`` where there is no ``/proc``."""
    if not Path("/proc/self/stat").exists():
        return "unknown"
    with suppress(OSError):
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return _STATES.get(text.rpartition(")")[2].split()[0], "running")
    return "ended"


def whereabouts(thread: int) -> tuple[bool, str]:
    """Whether a thread of this process is in a collective, and in words where it is."""
    frames = _frames(sys._current_frames().get(thread))
    inside = next((number for number, frame in enumerate(frames) if _is_communication(frame)), None)
    if inside is None:
        return False, f"in {_shown(frames[0])}" if frames else "at an unknown place"
    while inside + 1 < len(frames) and _is_communication(frames[inside + 1]):
        inside += 1
    caller = f", called by {_shown(frames[inside + 1])}" if inside + 1 < len(frames) else ""
    return True, f"waiting in {frames[inside].f_code.co_name}{caller}"


def all_stacks() -> str:
    """Where every thread of this process is, innermost call first. Reads no file: the disk may be what hangs."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    lines = []
    for thread, frame in sys._current_frames().items():
        if thread == own:
            continue
        lines.append(f"thread {names.get(thread, thread)}:")
        lines += [f"  {_located(inner)}" for inner in _frames(frame)[:MAX_FRAMES]]
    return "\n".join(lines)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """A stack, innermost call first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_communication(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_COMMUNICATION)


def _shown(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def _located(frame: FrameType) -> str:
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}'
