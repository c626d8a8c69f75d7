"""How much memory there is, and how much of it can still be had: by the machine and by control groups.

An allocation may succeed without memory behind it, since Linux gives pages out when they are first touched and then
kills whom it must. So who wants to know whether something fits asks here before. A container has a limit of its own:
the smallest of all groups above a process counts. What files have left in the page cache can be had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ringlet.launch.memory import memory_groups

_ROOT, _GROUPS, _MEMORY = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/meminfo")
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""By the version of control groups: the limit, what is used, and the line of ``memory.stat`` with idle file pages."""


def available_bytes(root: Path = _ROOT, groups: Path = _GROUPS, memory: Path = _MEMORY) -> int | None:
    """What processes here can still have, without swap; None if nothing is known about it."""
    kilobytes = _numbers(memory).get("MemAvailable:")
    left = [] if kilobytes is None else [kilobytes << 10]
    for limit, used, idle in _limits(root, groups):
        left.append(max(limit - max(used - idle, 0), 0))
    return min(left, default=None)


def total_bytes(root: Path = _ROOT, groups: Path = _GROUPS) -> int | None:
    """What processes here may use in all; None if nothing is known about it."""
    known = [limit for limit, _, _ in _limits(root, groups)]
    with suppress(ValueError, OSError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def _limits(root: Path, groups: Path) -> Iterator[tuple[int, int, int]]:
    """Limit, use and idle file pages of every group of this process, and of all groups around it."""
    for version, places, group in memory_groups(root, groups):
        limit_name, used_name, idle_name = _FILES[version]
        for place in places:
            for folder in (Path(group), *Path(group).parents):
                limit, used = (_number(place / folder / name) for name in (limit_name, used_name))
                if limit is not None and used is not None:
                    yield limit, used, _numbers(place / folder / "memory.stat").get(idle_name, 0)


def _number(file: Path) -> int | None:
    """The only number of a file; None for ``max``, and where there is no such file."""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


def _numbers(file: Path) -> dict[str, int]:
    """The lines ``name number`` of a file."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) >= 2 and line[1].isdecimal()}
