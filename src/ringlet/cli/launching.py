"""Options that start a verb on several workers, and the start itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from ringlet.config import RunConfig
    from ringlet.launch.plan import LaunchPlan

NumWorkers = Annotated[
    int | None,
    typer.Option("-n", "-np", "--num-workers", metavar="INT", help="Start so many workers", min=1, max=65536),
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

Restarts = Annotated[
    int,
    typer.Option(
        "--restarts", metavar="INT", help="Start all workers again so often if one dies, hangs or fails", min=0
    ),
]
MinWorkers = Annotated[
    int | None,
    typer.Option(
        "--min-workers", metavar="INT", help="Go on without hosts that do not answer, if so many remain", min=1
    ),
]
RESOLVED = "--resolved"
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show all layers, and all options, not only what differs from the defaults")
]
Resolved = Annotated[str | None, typer.Option(RESOLVED, metavar="JSON", hidden=True, help="for workers: all options")]


def launch_plan(
    num_workers: int | None,
    hosts: str | None,
    hostfile: Path | None,
    launcher: str = "auto",
    output: str = "plain",
    threads: int | None = None,
    restarts: int = 0,
    min_workers: int | None = None,
) -> LaunchPlan | None:
    """The checked plan of a start; None if there is nothing to start because nothing was asked for."""
    if num_workers is None and hosts is None and hostfile is None and not restarts:
        return None
    from ringlet.launch.plan import LaunchPlan, parse_hosts, read_hostfile

    if hosts is not None and hostfile is not None:
        raise UsageError("--hosts and --hostfile exclude each other: give one of them")
    machines = parse_hosts(hosts) if hosts is not None else read_hostfile(hostfile) if hostfile is not None else ()
    return LaunchPlan(num_workers, machines, launcher, threads, output, restarts, min_workers)


def start_workers(arguments: Sequence[str], plan: LaunchPlan | None, *, wants_mpi: bool = False) -> int | None:
    """Start this command line on all workers and give its exit code; None if this process is to do the work itself.

    A process that a launcher has started already joins the others instead. ``wants_mpi``: the verb uses MPI beside
    Ringlet's own exchange.
    """
    if plan is None:
        return None
    from ringlet.launch import relaunch
    from ringlet.launch.plan import must_start

    return relaunch(arguments, plan, wants_mpi=wants_mpi) if must_start(plan) else None


def start_run(config: RunConfig, plan: LaunchPlan, *, json: bool, verbose: bool = False) -> int:
    """Start a run on all workers and give its exit code.

    The configuration is read once, here: workers are given all of it as text, wherever they are, and look at no file,
    variable or option again. With restarts what ``resume`` names counts until there is a newer checkpoint.
    """
    from ringlet.launch import relaunch

    if not plan.restarts:
        return relaunch(_for_workers(config, json=json, verbose=verbose), plan)
    from ringlet.training.run_directory import RunDirectory

    again = ("--resume", "auto") if config.checkpoint.resume not in (None, "auto") else ()
    with _fixed_directory(config) as path:
        arguments = _for_workers(config.replace(run_dir=str(path)), json=json, verbose=verbose)
        checkpoints = RunDirectory(path, config.checkpoint.location).checkpoints
        return relaunch(arguments, plan, checkpoints=checkpoints, again=again)


def _for_workers(config: RunConfig, *, json: bool, verbose: bool) -> list[str]:
    """The command line of a worker."""
    return [
        "train",
        RESOLVED,
        dumps(config.to_dict()),
        *(["--json"] if json else []),
        *(["--verbose"] if verbose else []),
    ]


def resolved_config(text: str, changes: Mapping[str, Any]) -> RunConfig:
    """The configuration that a worker was given, with what its launcher has added for this attempt."""
    from ringlet.config import RunConfig, gather

    return RunConfig(**loads(text)).replace(**gather(None, None, changes).values)


def delivered(exit_code: int, *, json: bool) -> int:
    """The exit code of workers, if what they were asked to print has reached its reader: a document that is wanted."""
    from ringlet.output_streams import check_delivered

    if json and exit_code == EXIT_OK:
        check_delivered()
    return exit_code


@contextmanager
def _fixed_directory(config: RunConfig) -> Iterator[Path]:
    """The run directory, the same for all attempts. If it was not given it is made, so that no other run takes it."""
    from ringlet.training.run_directory import check_run_directory, run_path

    check_run_directory(config)
    if config.output.run_dir:
        yield Path(config.output.run_dir)
        return
    path = _claim(lambda: run_path(config))
    try:
        yield path
    finally:
        with suppress(OSError):
            path.rmdir()  # if the run has not even begun


def _claim(propose: Callable[[], Path]) -> Path:
    while True:
        path = propose()
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"run directory '{path}' cannot be made: {error.strerror}. Give another --run-dir"
            ) from None
        return path


def as_attempt(config: RunConfig) -> RunConfig:
    """The configuration of a worker: one that was started again goes on where the attempt before it was."""
    from ringlet.launch.restarts import current_attempt

    if config.checkpoint.resume is None and config.output.run_dir and current_attempt():
        return config.replace(resume="auto")
    return config
