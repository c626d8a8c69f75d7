"""Unchanged Horovod programs: ``ringlet run --horovod`` lets them find Ringlet where they import Horovod.

The folder ``ringlet/compatibility`` holds a package ``horovod`` whose names are Ringlet's. It comes first on the path
of every rank, before an installed Horovod. Ranks find their place in ``HOROVOD_RANK`` and so on, as under horovodrun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import ringlet
from ringlet.comm.environments import World
from ringlet.errors import UsageError

MARK = "RINGLET_HOROVOD"
"""Set in programs that shall find Ringlet as Horovod."""
FOLDER = Path(ringlet.__file__).resolve().parent / "compatibility"

_SAME_VALUES = {
    "HOROVOD_TIMELINE": "RINGLET_TRACE",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "RINGLET_STALL_WARNING_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "RINGLET_STALL_ERROR_SECONDS",
}
_NEVER = "0"
_RUN_OPTIONS = frozenset(
    {
        "disable_cache",
        "executable",
        "gloo_timeout_seconds",
        "mpi_args",
        "network_interface",
        "output_filename",
        "ssh_identity_file",
        "ssh_port",
        "start_timeout",
        "use_gloo",
        "use_mpi",
        "verbose",
    }
)
"""Arguments of ``horovod.run`` about logs, networks and the start, which change nothing here."""


def translated(environ: Mapping[str, str]) -> dict[str, str]:
    """Ringlet's settings for those of Horovod's that mean something here; what Ringlet was told itself counts more."""
    settings = {ours: environ[theirs] for theirs, ours in _SAME_VALUES.items() if environ.get(theirs)}
    if environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") not in ("", "0"):
        settings |= {"RINGLET_STALL_WARNING_SECONDS": _NEVER, "RINGLET_STALL_ERROR_SECONDS": _NEVER}
    return {name: value for name, value in settings.items() if name not in environ}


def enable(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process and all that it starts import Ringlet as ``horovod``."""
    loaded = sys.modules.get("horovod")
    if loaded is not None and FOLDER not in Path(loaded.__file__ or "").resolve().parents:
        raise UsageError("another package 'horovod' has been imported already: use --horovod before it is")
    environ.update(translated(environ))
    environ[MARK] = "1"
    paths = [str(FOLDER), *(path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
    environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))


def tell_place(world: World | None, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set in a rank of such a program the variables in which horovodrun tells it its place."""
    if not environ.get(MARK):
        return
    here = world or World("none", 0, 1, 0, 1)
    local_size = here.local_size or 1
    places = {
        "RANK": here.rank,
        "SIZE": here.size,
        "LOCAL_RANK": here.local_rank or 0,
        "LOCAL_SIZE": local_size,
        "CROSS_RANK": here.rank // local_size,
        "CROSS_SIZE": -(-here.size // local_size),
    }
    environ.update({f"HOROVOD_{name}": str(value) for name, value in places.items()})


def run_like_horovod(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    hosts: str | None = None,
    *,
    np: int | None = None,
    **options: Any,
) -> list[Any]:
    """``horovod.run``: ``ringlet.run`` with Horovod's arguments; ``np`` is their old name of ``num_proc``.

    ``hosts`` may name this machine only: functions and their values do not travel. ``options`` about logs, networks and
    time-outs of the start are accepted; there is nothing here that they would change.
    """
    from ringlet.launch.function import run
    from ringlet.launch.plan import parse_hosts

    unknown = options.keys() - _RUN_OPTIONS
    if unknown:
        raise UsageError(f"unknown argument {', '.join(sorted(unknown))}. Known: {', '.join(sorted(_RUN_OPTIONS))}")
    machines = parse_hosts(hosts) if hosts is not None else ()
    if not all(host.is_this_machine for host in machines):
        raise UsageError(f"a function can be run on this machine only, not on {hosts}: use `ringlet run --hosts`")
    wished = num_proc if num_proc is not None else np
    num_workers = wished if wished is not None else sum(host.slots for host in machines) or 1
    launcher = "mpi" if options.get("use_mpi") else "auto"
    return run(func, *args, num_workers=num_workers, launcher=launcher, **(kwargs or {}))
