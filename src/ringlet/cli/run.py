"""``ringlet run``: start a script or module on many ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ringlet.cli.launching import HostFile, Hosts, Launcher, MinWorkers, NumWorkers, Output, Restarts, launch_plan
from ringlet.output_streams import outlive_output

EXIT_KILLED = 130
EXAMPLES = (
    ("ringlet run -n 4 train.py --epochs 5", "a script of yours; what follows its name is the script's"),
    ("ringlet run -n 2 -m package.train --epochs 5", "a module; what follows its name is the module's"),
    ("ringlet run --horovod -n 2 train.py", "a Horovod program, unchanged"),
    ("ringlet run --hostfile hosts.txt --output logs train.py", "machines of a file, a log per worker"),
)


class RunCommand(TyperCommand):
    """Cuts the line where the script's or module's own words begin; horovodrun's options become Ringlet's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Ringlet's words are parsed, the others are passed on."""
        own, others = self._cut(args)
        if own[-1:] == ["--"]:
            own.pop()
        from ringlet.comm import horovod_variables
        from ringlet.launch.horovodrun import translated

        found = translated(own)
        os.environ.update(found.variables | horovod_variables.translated(found.variables))
        for remark in found.remarks:
            print(f"ringlet: {remark}", file=sys.stderr)
        return super().parse_args(ctx, [*found.words, *(["--", *others] if others else [])])

    def _cut(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Ringlet's options, and what follows: a script or ``-m`` with a module, and all its words."""
        valued = {
            name for parameter in self.params if not getattr(parameter, "is_flag", True) for name in parameter.opts
        } - {"-m"}
        place = 0
        while place < len(args):
            word = args[place]
            if word == "--":
                return [*args[: place + 1]], [*args[place + 1 :]]
            if word == "-m" or not word.startswith("-") or word == "-":
                break
            place += 2 if "=" not in word and self._takes_value(word, valued) else 1
        return [*args[:place]], [*args[place:]]

    @staticmethod
    def _takes_value(word: str, valued: set[str]) -> bool:
        from ringlet.launch.horovodrun import takes_value

        return bool(takes_value(word)) or word in valued or word.replace("_", "-") in valued


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
    workers exist already and the script runs as one of them. Options of horovodrun are understood too.
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
    app.command("run", cls=RunCommand, context_settings={"allow_interspersed_args": False})(run)
    return typer.main.get_command(app)
