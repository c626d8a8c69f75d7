"""Options that start a verb on several workers, and the start itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlet.errors import UsageError

if TYPE_CHECKING:
    from ringlet.launch.plan import LaunchPlan

NumWorkers = Annotated[
    int | None, typer.Option("-n", "--num-workers", metavar="INT", help="Start so many workers", min=1, max=65536)
]
Hosts = Annotated[str | None, typer.Option("--hosts", metavar="HOST:N,…", help="Machines and their workers")]
HostFile = Annotated[Path | None, typer.Option("--hostfile", metavar="FILE", help="The same from a file")]
Launcher = Annotated[
    str, typer.Option("--launcher", metavar="auto|mpi|local", help="What starts the workers (default: auto)")
]
Output = Annotated[
    str,
    typer.Option("--output", metavar="plain|prefix|DIR", help="What workers print: prefixed by rank, or to files"),
]


def launch_plan(
    num_workers: int | None,
    hosts: str | None,
    hostfile: Path | None,
    launcher: str = "auto",
    output: str = "plain",
    threads: int | None = None,
) -> LaunchPlan | None:
    """The checked plan of a start; None if there is nothing to start because nothing was asked for."""
    if num_workers is None and hosts is None and hostfile is None:
        return None
    from ringlet.launch.hosts import parse_hosts, read_hostfile
    from ringlet.launch.plan import LaunchPlan

    if hosts is not None and hostfile is not None:
        raise UsageError("--hosts and --hostfile exclude each other: give one of them")
    machines = parse_hosts(hosts) if hosts is not None else read_hostfile(hostfile) if hostfile is not None else ()
    return LaunchPlan(num_workers, machines, launcher, threads, output)


def start_workers(arguments: Sequence[str], plan: LaunchPlan | None) -> int | None:
    """Start this command line on all workers and give its exit code; None if this process is to do the work itself.

    A process that a launcher has started already joins the others instead.
    """
    if plan is None:
        return None
    from ringlet.launch import relaunch
    from ringlet.launch.plan import must_start

    return relaunch(list(arguments), plan) if must_start(plan) else None
