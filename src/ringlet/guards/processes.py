"""What can be seen of a process from inside (its threads' stacks) and from outside (whether it runs at all)."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType

_STATES = {"T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}
_COMMUNICATION = "ringlet.comm."
MAX_FRAMES = 60


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
