"""How many cores this process may use, and how many threads its ranks get."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def usable_cores() -> int:
    """Cores that the affinity allows, or fewer if the control group's quota is smaller (as in containers)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_quota()
    return max(1, cores if quota is None else min(cores, int(quota + 0.5)))


def control_group_quota(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> float | None:
    """The processor time a second that the control groups grant, in cores; None if there is no limit.

    The smallest limit on the way from this process's group to the root counts.
    """
    try:
        entries = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    limits: list[float] = []
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        if controllers == "":
            limits += _limits(root, path, "cpu.max")
        elif "cpu" in controllers.split(","):
            limits += _limits(root / "cpu", path, "cpu.cfs_quota_us")
    return min(limits, default=None)


def _limits(root: Path, path: str, name: str) -> list[float]:
    group = Path(path.lstrip("/"))
    found = (_limit(root / folder / name) for folder in (group, *group.parents) if ".." not in folder.parts)
    return [limit for limit in found if limit is not None]


def _limit(file: Path) -> float | None:
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
