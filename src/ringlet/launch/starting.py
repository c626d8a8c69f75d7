"""Start ranks by a plan and stay with them until the last has ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ringlet.errors import UsageError
from ringlet.launch.job import Job, Outcome
from ringlet.launch.local import LocalRanks
from ringlet.launch.mpi import MpiRanks
from ringlet.launch.mpiexec import MpiLauncher, find_mpi
from ringlet.launch.output import Write, create_output
from ringlet.launch.plan import LaunchPlan, must_start
from ringlet.launch.supervise import Ranks, supervise
from ringlet.launch.terminal import terminal_environment


def start(command: Sequence[str], plan: LaunchPlan) -> int:
    """Run ``script.py arguments…`` or ``-m module arguments…`` on all ranks of the plan; the exit code of the job.

    Within a rank that a launcher has started already, the command runs in this process as that rank.
    """
    if not must_start(plan):
        from ringlet.launch import worker

        return worker.run(_checked(command))
    return execute(_checked(command), plan, write_through).exit_code


def relaunch(arguments: Sequence[str], plan: LaunchPlan) -> int:
    """Run ``ringlet`` with these arguments on all ranks of the plan; the exit code of the job."""
    return start(["-m", "ringlet", *arguments], plan)


def execute(
    command: Sequence[str],
    plan: LaunchPlan,
    write: Write,
    *,
    tell: Callable[[str], None] | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Start ranks, pass what they print to ``write`` and failures to ``tell`` (default: also ``write``)."""
    launcher = choose(plan)
    environ = {**os.environ, **terminal_environment(plan.output, os.environ)}
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.flush()
    with contextlib.closing(create_output(plan.output, plan.size, write, terminal=os.isatty(2))) as output:
        job = Job(plan.size, output, tell)
        ranks = _start(command, plan, launcher, environ)
        if seconds is not None:
            job.limit(seconds)
        return supervise(ranks, job)


def _start(command: Sequence[str], plan: LaunchPlan, launcher: MpiLauncher | None, environ: Mapping[str, str]) -> Ranks:
    if launcher is not None:
        return MpiRanks(command, plan, launcher, environ)
    return LocalRanks(command, plan.size, plan.threads, environ)


def choose(plan: LaunchPlan) -> MpiLauncher | None:
    """The MPI launcher to use; None for plain processes, which ``auto`` takes where MPI does not work."""
    wish = plan.chosen_launcher()
    if wish == "local":
        if not plan.is_local:
            raise UsageError("the local launcher starts ranks on this machine only: leave out the hosts or use MPI")
        return None
    if wish == "mpi" or not plan.is_local:
        return find_mpi()
    try:
        return find_mpi()
    except UsageError:
        return None


def _checked(command: Sequence[str]) -> list[str]:
    """Refuse what no rank could run, before any is started."""
    words = [str(word) for word in command]
    if not words or words == ["-m"]:
        raise UsageError("there is nothing to run: give a script or -m and a module")
    if words[0] == "-m":
        _check_module(words[1])
    elif not Path(words[0]).is_file():
        raise UsageError(f"script '{words[0]}' is no file: give the path of a Python script, or -m and a module")
    return words


def _check_module(name: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        known = find_spec(name) is not None
    except (ImportError, ValueError):
        known = False
    finally:
        sys.path.pop(0)
    if not known:
        raise UsageError(
            f"module '{name}' cannot be imported: give the name of an installed module or one in this folder"
        )


def write_through(stream: int, data: bytes) -> None:
    """To the output of this process, at once."""
    while data:
        data = data[os.write(stream, data) :]
