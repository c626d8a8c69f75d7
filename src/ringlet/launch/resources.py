"""What this machine and its control groups grant a process: cores, threads, memory.

A container has limits of its own: the smallest on the way from a process's group to the root counts. An allocation may
succeed without memory behind it, since Linux gives pages out when they are first touched and then kills what it must.
So code that wants to know whether something fits asks here before. The kernel counts those that it has killed, and
tells no one else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_ROOT, _GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMORY, _STATISTICS = Path("/proc/meminfo"), Path("/proc/vmstat")
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""By the version of control groups: the limit, what is used, and the line of ``memory.stat`` with idle file pages."""


# -- cores ------------------------------------------------------------------------------------------------------------
def usable_cores() -> int:
    """Cores that the affinity allows, or fewer if the control group's quota is smaller (as in containers)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_quota()
    return max(1, cores if quota is None else min(cores, int(quota + 0.5)))


def control_group_quota(root: Path = _ROOT, groups: Path = _GROUPS) -> float | None:
    """The processor time a second that the control groups grant, in cores; None if there is no limit."""
    names = {1: "cpu.cfs_quota_us", 2: "cpu.max"}
    found = (_quota(folder / names[version]) for version, folder in _all_groups("cpu", root, groups))
    return min((quota for quota in found if quota is not None), default=None)


def _quota(file: Path) -> float | None:
    """``max 100000`` or ``150000 100000`` (version 2); in version 1 the period is a file of its own."""
    try:
        words = file.read_text().split()
        if file.name == "cpu.cfs_quota_us":
            words += file.with_name("cpu.cfs_period_us").read_text().split()
        quota, period = (float(word) for word in words)
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def thread_environment(threads: int | None, ranks_here: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that give a rank ``threads`` threads; default: an equal share of the cores.

    Without ``threads`` what the user has set stays, and OMP_NUM_THREADS then speaks for those that are not set.
    """
    if threads is not None:
        return dict.fromkeys(THREAD_VARIABLES, str(threads))
    share = environ.get("OMP_NUM_THREADS") or str(max(1, usable_cores() // max(1, ranks_here)))
    return {name: environ.get(name) or share for name in THREAD_VARIABLES}


# -- memory -----------------------------------------------------------------------------------------------------------
def available_bytes(root: Path = _ROOT, groups: Path = _GROUPS, memory: Path = _MEMORY) -> int | None:
    """What processes here can still have, without swap; None if nothing is known about it.

    What files have left in the page cache can be had.
    """
    kilobytes = _numbers(memory).get("MemAvailable:")
    left = [] if kilobytes is None else [kilobytes << 10]
    for limit, used, idle in _memory_limits(root, groups):
        left.append(max(limit - max(used - idle, 0), 0))
    return min(left, default=None)


def total_bytes(root: Path = _ROOT, groups: Path = _GROUPS) -> int | None:
    """What processes here may use in all; None if nothing is known about it."""
    known = [limit for limit, _, _ in _memory_limits(root, groups)]
    with suppress(ValueError, OSError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def _memory_limits(root: Path, groups: Path) -> Iterator[tuple[int, int, int]]:
    """Limit, use and idle file pages of every group of this process, and of all groups around it."""
    for version, folder in _all_groups("memory", root, groups):
        limit_name, used_name, idle_name = _MEMORY_FILES[version]
        limit, used = (_number(folder / name) for name in (limit_name, used_name))
        if limit is not None and used is not None:
            yield limit, used, _numbers(folder / "memory.stat").get(idle_name, 0)


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
    for file in (*_kill_files(root, groups), statistics):
        count = _numbers(file).get("oom_kill")
        if count is not None:
            return count
    return 0


def _kill_files(root: Path, groups: Path) -> Iterator[Path]:
    """Files that count for the group of this process; in a container its path may be missing, the root is its own."""
    for version, places, group in _own_groups("memory", root, groups):
        if version == 2:
            yield from (place / group / "memory.events" for place in places)
        else:
            yield from (place / folder / "memory.oom_control" for place in places for folder in (group, ""))


# -- control groups ---------------------------------------------------------------------------------------------------
def _all_groups(controller: str, root: Path, groups: Path) -> Iterator[tuple[int, Path]]:
    """The version and folder of every group that this process belongs to, and of all groups around it."""
    for version, places, group in _own_groups(controller, root, groups):
        for place in places:
            for folder in (Path(group), *Path(group).parents):
                yield version, place / folder


def _own_groups(controller: str, root: Path, groups: Path) -> Iterator[tuple[int, list[Path], str]]:
    """The control groups of this process with this controller: their version, where they lie, their path there."""
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
        elif controller in controllers.split(","):
            yield 1, [root / controller], group


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
