"""``ringlet run``: start a script or module on many ranks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ringlet.cli.launching import HostFile, Hosts, Launcher, MinWorkers, NumWorkers, Output, Restarts, launch_plan
from ringlet.output_streams import outlive_output

EXIT_KILLED = 130
EXAMPLES = (
    ("ringlet run -n 4 train.py --epochs 5", "a script of yours; what follows its name is the script's"),
    ("ringlet run -n 2 -m package.train", "a module"),
    ("ringlet run --horovod -n 2 train.py", "a Horovod program, unchanged"),
    ("ringlet run --hostfile hosts.txt --output logs train.py", "machines of a file, a log per worker"),
)


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT [ARGUMENTS]...", help="script and its arguments")
    ] = None,
    num_workers: NumWorkers = None,
    module: Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module instead of a script")] = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launcher: Launcher = "auto",
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="INT", help="Threads of each worker; default: cores / workers")
    ] = None,
    output: Output = "plain",
    restarts: Restarts = 0,
    min_workers: MinWorkers = None,
    horovod: Annotated[bool, typer.Option("--horovod", help="Let the script find Ringlet as its Horovod")] = False,
) -> None:
    """Start a script on many workers.

    Options come before the script; everything after it is the script's. Under mpiexec, mpirun, srun or torchrun the
    workers exist already and the script runs as one of them.
    """
    from ringlet.launch import LaunchPlan, start

    outlive_output()
    if horovod:
        from ringlet.launch.horovod import enable

        enable()
    plan = launch_plan(num_workers, hosts, hostfile, launcher, output, threads, restarts, min_workers)
    target = [*(["-m", module] if module is not None else []), *(command or [])]
    exit_code = start(target, plan or LaunchPlan(None, (), launcher, threads, output))
    if exit_code == EXIT_KILLED:
        from ringlet.cli.display import complain

        complain("all workers have ended", "interrupted")
    raise typer.Exit(exit_code)


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("run", context_settings={"allow_interspersed_args": False})(run)
    return typer.main.get_command(app)
