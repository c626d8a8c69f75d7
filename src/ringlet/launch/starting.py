"""Start ranks by a plan, stay with them until the last has ended, and start them again if the plan says so."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ringlet.errors import EXIT_RANK_DIED, UsageError
from ringlet.io.storage import Place
from ringlet.launch.commit_folder import commit_folder
from ringlet.launch.horovodrun import without_interpreter
from ringlet.launch.job import SIGNAL_BASE, Job, Outcome, Ranks, caught_signals, supervise
from ringlet.launch.local import LocalRanks, PlainProcesses
from ringlet.launch.messages import STDERR
from ringlet.launch.mpi import MpiRanks
from ringlet.launch.mpiexec import MPIEXEC_VARIABLE, MpiLauncher, answering_hosts, find_mpi, mpi_library, without_absent
from ringlet.launch.output import Write, create_output, terminal_environment
from ringlet.launch.plan import LaunchPlan, must_start
from ringlet.launch.restarts import CheckpointWatch, Supervisor, attempt_environment, restart_delay
from ringlet.output_streams import write_all

Command = Callable[[LaunchPlan, bool], Sequence[str]]
"""What ranks run, by the plan they are started with and whether an earlier attempt has made progress."""


def start(command: Sequence[str], plan: LaunchPlan) -> int:
    """Run ``script.py arguments…`` or ``-m module arguments…`` on all ranks of the plan; the exit code of the job.

    Within a rank that a launcher has started already, the command runs in this process as that rank.
    """
    words = _checked(command)
    return _start_or_join(lambda _plan, _progressed: words, plan, wants_mpi=True, keeps_commits=True)


def relaunch(
    arguments: Sequence[str],
    plan: LaunchPlan,
    *,
    checkpoints: Place | None = None,
    again: Sequence[str] = (),
    wants_mpi: bool = False,
) -> int:
    """Run ``ringlet`` with these arguments on all ranks of the plan; the exit code of the job.

    ``wants_mpi``: it uses MPI itself, also on one machine.

    With restarts: a new entry in the folder ``checkpoints`` is progress, and arguments of later attempts then end with
    ``again``.
    """

    def command(actual: LaunchPlan, has_progressed: bool) -> list[str]:
        number = [] if actual.size == plan.size else ["-n", str(actual.size)]
        return ["-m", "ringlet", *arguments, *(again if has_progressed else ()), *number]

    return _start_or_join(command, plan, checkpoints, wants_mpi=wants_mpi)


def _start_or_join(
    command: Command,
    plan: LaunchPlan,
    checkpoints: Place | None = None,
    *,
    wants_mpi: bool = False,
    keeps_commits: bool = False,
) -> int:
    if not must_start(plan):
        from ringlet.launch import worker

        return worker.run(command(plan, False))
    if plan.restarts:
        restart_delay(1)  # a mistake there is better told before anything starts
    launcher = choose(plan, wants_mpi=wants_mpi)
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(commit_folder(plan, launcher)) if keeps_commits and plan.restarts else {}
        caught = stack.enter_context(caught_signals())
        supervisor = Supervisor(plan.restarts, _Attempts(command, plan, launcher, caught, told).run, _say)
        supervisor.caught = caught
        supervisor.workers = f"{plan.size} worker{'s' if plan.size > 1 else ''}"
        if checkpoints is not None:
            elsewhere = bool(plan.hosts) and not plan.hosts[0].is_this_machine
            supervisor.token = CheckpointWatch(checkpoints, elsewhere).token
        return supervisor.run().exit_code


@dataclass
class _Attempts:
    """Does a job once, as often as it is called. Every attempt is told why the one before it ended."""

    command: Command
    plan: LaunchPlan
    launcher: MpiLauncher | PlainProcesses
    caught: list[int]
    told: Mapping[str, str] = field(default_factory=dict)
    """Variables for all attempts."""
    cause: str | None = None

    def run(self, number: int, has_progressed: bool) -> Outcome:
        """One attempt, and what came of it."""
        outcome = self._run(number, has_progressed)
        self.cause = outcome.cause
        return outcome

    def _run(self, number: int, has_progressed: bool) -> Outcome:
        """On the hosts that are there, if the plan can do without some."""
        plan = self.plan
        if plan.min_workers is not None and isinstance(self.launcher, MpiLauncher) and not plan.is_local:
            present = answering_hosts(plan.hosts, self.launcher, os.environ, caught=self.caught)
            if self.caught:
                return Outcome(SIGNAL_BASE + self.caught[0], asked=self.caught[0])
            absent = ", ".join(host.name for host in plan.hosts if host not in present)
            reduced = without_absent(plan, present)
            if reduced is None:
                return _too_few(plan, absent, sum(host.slots for host in present))
            if absent:
                _say(f"left out because they do not answer: {absent}; starting {reduced.size} of {plan.size} workers")
            plan = reduced
        command = self.command(plan, has_progressed)
        told = {**self.told, **attempt_environment(number, self.cause)}
        return _run(command, plan, self.launcher, write_through, told=told, append=number > 0, caught=self.caught)


def _too_few(plan: LaunchPlan, absent: str, remaining: int) -> Outcome:
    cause = (
        f"no answer from {absent}: {remaining} of {plan.size} workers remain, at least {plan.min_workers} are needed"
    )
    if not plan.restarts:
        _say(cause)
    return Outcome(EXIT_RANK_DIED, cause, cause, is_absence=True)


def execute(
    command: Sequence[str],
    plan: LaunchPlan,
    write: Write,
    *,
    tell: Callable[[str], None] | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Start ranks once, pass what they print to ``write`` and failures to ``tell`` (default: also ``write``)."""
    launcher = choose(plan, wants_mpi=True)
    with caught_signals() as caught:
        return _run(command, plan, launcher, write, tell=tell, seconds=seconds, caught=caught)


def _run(
    command: Sequence[str],
    plan: LaunchPlan,
    launcher: MpiLauncher | PlainProcesses,
    write: Write,
    *,
    caught: list[int],
    told: Mapping[str, str] | None = None,
    append: bool = False,
    tell: Callable[[str], None] | None = None,
    seconds: float | None = None,
) -> Outcome:
    variables = told if told is not None else attempt_environment(0, None)
    environ = {**os.environ, **terminal_environment(plan.output), **variables}
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.flush()
    kind = create_output(plan.output, plan.size, write, terminal=os.isatty(2), append=append)
    with contextlib.closing(kind) as output:
        job = Job(plan.size, output, tell)
        ranks = _start(command, plan, launcher, environ)
        if seconds is not None:
            job.limit(seconds)
        return supervise(ranks, job, caught)


def _start(
    command: Sequence[str], plan: LaunchPlan, launcher: MpiLauncher | PlainProcesses, environ: Mapping[str, str]
) -> Ranks:
    if isinstance(launcher, MpiLauncher):
        return MpiRanks(command, plan, launcher, environ)
    return LocalRanks(command, plan.size, plan.threads, environ, serves_mpi=launcher.serves_mpi)


def _say(text: str) -> None:
    write_through(STDERR, f"{text}\n".encode())


def choose(plan: LaunchPlan, *, wants_mpi: bool) -> MpiLauncher | PlainProcesses:
    """What starts the ranks.

    ``auto`` takes MPI's launcher for several machines alone. On one machine Ringlet needs no MPI, and launchers listen
    for connections from everywhere. What may use MPI itself (``wants_mpi``: scripts) still finds it there: ranks of an
    MPICH are served by this process; for another MPI its launcher is taken where there is one.
    """
    wish = plan.chosen_launcher()
    if wish == "local":
        if not plan.is_local:
            raise UsageError("the local launcher starts ranks on this machine only: leave out the hosts or use MPI")
        return PlainProcesses()
    if wish == "mpi" or not plan.is_local:
        return find_mpi()
    if plan.stays_here and not os.environ.get(MPIEXEC_VARIABLE):
        library = mpi_library() if wants_mpi else ""
        if not library or library.startswith("MPICH"):
            return PlainProcesses(serves_mpi=bool(library))
    try:
        return find_mpi()
    except UsageError:
        return PlainProcesses()


def _checked(command: Sequence[str]) -> list[str]:
    """Refuse what no rank could run, before any is started."""
    words = without_interpreter([str(word) for word in command])
    if not words or words == ["-m"]:
        raise UsageError("there is nothing to run: give a script or -m and a module")
    if words[0] == "-m":
        _check_module(words[1])
    elif not Path(words[0]).is_file():
        raise UsageError(
            f"script '{words[0]}' is no file: give the path of a Python script, or -m and a module. Options of Ringlet "
            "come before it"
        )
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
    """To the output of this process, at once; if no one takes it any more, the ranks continue all the same."""
    write_all(stream, data)
