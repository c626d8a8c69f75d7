"""Whether the kernel has killed processes here because memory ran out: it counts them, and tells nobody else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

_ROOT, _GROUPS, _STATISTICS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/vmstat")


class MemoryWatch:
    """Tells for processes that end after it was made whether the kernel ended them for want of memory."""

    def __init__(self, root: Path = _ROOT, groups: Path = _GROUPS, statistics: Path = _STATISTICS) -> None:
        self._places = root, groups, statistics
        self._before = count_kills(*self._places)

    def explains(self, return_code: int) -> bool:
        """Whether memory ran out, to judge by a process's return code (as of ``subprocess``) and the counters."""
        return return_code == -signal.SIGKILL and count_kills(*self._places) > self._before


def count_kills(root: Path = _ROOT, groups: Path = _GROUPS, statistics: Path = _STATISTICS) -> int:
    """How many processes were killed for want of memory: those of this control group, or else of the machine.

    0 if nothing is known about it.
    """
    for file in _group_files(root, groups):
        count = _read_count(file)
        if count is not None:
            return count
    return _read_count(statistics) or 0


def _group_files(root: Path, groups: Path) -> list[Path]:
    """Files that count for the group of this process; in a container its path may be missing, the root is its own."""
    files: list[Path] = []
    for version, places, group in memory_groups(root, groups):
        if version == 2:
            files += [place / group / "memory.events" for place in places]
        else:
            files += [place / folder / "memory.oom_control" for place in places for folder in (group, "")]
    return files


def memory_groups(root: Path = _ROOT, groups: Path = _GROUPS) -> Iterator[tuple[int, list[Path], str]]:
    """The control groups that this process's memory belongs to: their version, where they lie, their path there."""
    try:
        entries = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        group = path.lstrip("/")
        if ".." in Path(group).parts:
            group = ""
        if controllers == "":
            yield 2, [root, root / "unified"], group
        elif "memory" in controllers.split(","):
            yield 1, [root / "memory"], group


def _read_count(file: Path) -> int | None:
    """The number of the line ``oom_kill 3``."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    counts = [line.removeprefix("oom_kill ") for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts and counts[0].isdecimal() else None
