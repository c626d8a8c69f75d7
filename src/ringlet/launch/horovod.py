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
from ringlet.comm.horovod_variables import MARK, translated
from ringlet.errors import UsageError

FOLDER = Path(ringlet.__file__).resolve().parent / "compatibility"


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
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    start_timeout: int | None = None,  # noqa: ARG001
    ssh_port: int | None = None,  # noqa: ARG001
    ssh_identity_file: str | None = None,  # noqa: ARG001
    disable_cache: bool | None = None,  # noqa: ARG001
    output_filename: str | None = None,
    verbose: int | None = None,  # noqa: ARG001
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interfaces: str | None = None,  # noqa: ARG001
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """``horovod.run``: ``ringlet.run`` with Horovod's arguments; ``np`` is their old name of ``num_proc``.

    ``hosts`` may name this machine only: functions and their values do not travel. What is about networks and the time
    of the start is accepted, and there is nothing that it would change. What would make the job elastic, or start it by
    other programs, is refused.
    """
    from ringlet.launch.function import run
    from ringlet.launch.plan import parse_hosts, read_hostfile

    refused = {
        "min_num_proc": min_num_proc, "max_num_proc": max_num_proc, "min_np": min_np, "max_np": max_np, "slots": slots,
        "reset_limit": reset_limit, "cooldown_range": cooldown_range, "mpi_args": mpi_args, "executable": executable,
        "output_filename": output_filename,
    }  # fmt: skip
    given = ", ".join(name for name, value in refused.items() if value is not None)
    if given:
        raise UsageError(
            f"horovod.run cannot use {given}: it calls a function once, on workers of this Python. Use `ringlet run` "
            "with --restarts, --min-workers or --output and a script"
        )
    if (hosts is not None and hostfile is not None) or (use_gloo and use_mpi):
        raise UsageError("hosts and hostfile, and use_gloo and use_mpi, exclude each other: give one of them")
    machines = parse_hosts(hosts) if hosts is not None else read_hostfile(hostfile) if hostfile is not None else ()
    if not all(host.is_this_machine for host in machines):
        raise UsageError(
            f"a function can be run on this machine only, not on {hosts or hostfile}: use `ringlet run --hosts`"
        )
    wished = num_proc if num_proc is not None else np
    num_workers = wished if wished is not None else sum(host.slots for host in machines) or 1
    launcher = "mpi" if use_mpi else "auto"
    return run(func, *args, num_workers=num_workers, launcher=launcher, **(kwargs or {}))
