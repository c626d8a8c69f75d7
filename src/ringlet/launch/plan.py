"""What is to be started: how many ranks, on which hosts, by which launcher, and where their output goes.

Names of hosts are checked against a narrow pattern before anything else sees them: they end up among the arguments of
mpiexec and ssh, where a leading dash or a semicolon would be more than a name.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringlet.comm import environments
from ringlet.errors import UnknownNameError, UsageError
from ringlet.launch.messages import is_rank

LAUNCHERS = ("auto", "mpi", "local")
LAUNCHER_VARIABLE = "RINGLET_LAUNCHER"
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "LOADL_HOSTFILE",
               "COBALT_NODEFILE", "HYDRA_HOST_FILE")  # fmt: skip
"""Where they are set, mpiexec and srun take the machines from there."""
MAX_WORKERS = 65536
MAX_THREADS = 4096
MAX_RESTARTS = 10_000
MAX_SLOTS = 65536
MAX_HOSTFILE_BYTES = 1 << 20
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True)
class Host:
    """A machine and the number of ranks it takes."""

    name: str
    slots: int = 1

    def __post_init__(self) -> None:
        if not _HOST_NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name[:80]!r} is no host name: expected letters, digits, dots, dashes and underscores, "
                f"beginning with a letter or digit"
            )
        if not 1 <= self.slots <= MAX_SLOTS:
            raise UsageError(f"host '{self.name}' has {self.slots} slots: expected 1 to {MAX_SLOTS}")

    @property
    def is_this_machine(self) -> bool:
        """Whether the name is one of the machine's own."""
        return self.name in ("localhost", "127.0.0.1", socket.gethostname())


@dataclass(frozen=True)
class LaunchPlan:
    """A checked description of a start."""

    num_workers: int | None = None
    """Default: one for every slot of the hosts, else one."""
    hosts: tuple[Host, ...] = ()
    """Default: this machine."""
    launcher: str = "auto"
    """``mpi``, ``local`` (plain processes on this machine) or ``auto``: RINGLET_LAUNCHER, else plain processes on one
    machine and MPI on several; see ``starting.choose``."""
    threads: int | None = None
    """Threads of every rank; default: the machine's cores divided among its ranks."""
    output: str = "plain"
    """``plain``: rank 0's as it is, lines of the others with their rank; ``prefix``: every line with its rank; else a
    folder that takes one file per rank and stream."""
    restarts: int = 0
    """How often the job is started again after a failure; see ``restarts``."""
    min_workers: int | None = None
    """Hosts that do not answer are left out as long as this many workers remain; default: none is left out."""

    def __post_init__(self) -> None:
        if self.launcher not in LAUNCHERS:
            raise UnknownNameError("launcher", self.launcher, LAUNCHERS)
        if not 1 <= self.size <= MAX_WORKERS:
            raise UsageError(f"the number of workers is {self.size}: expected 1 to {MAX_WORKERS}")
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"the number of threads is {self.threads}: expected 1 to {MAX_THREADS}")
        if not self.output:
            raise UsageError("the output is empty: expected plain, prefix or a folder")
        if self.hosts and self.size > self.slots:
            raise UsageError(
                f"{self.size} workers do not fit the hosts, which take {self.slots} together: "
                f"give hosts more ranks (as in a:4,b:4) or ask for fewer workers"
            )
        if not 0 <= self.restarts <= MAX_RESTARTS:
            raise UsageError(f"the number of restarts is {self.restarts}: expected 0 to {MAX_RESTARTS}")
        if self.min_workers is not None and not 1 <= self.min_workers <= self.size:
            raise UsageError(
                f"the smallest number of workers is {self.min_workers}: expected 1 to {self.size}, all of them"
            )
        if self.launcher == "local" and not self.is_local:
            raise UsageError("the local launcher starts ranks on this machine only: leave out the hosts or use MPI")

    @property
    def slots(self) -> int:
        """How many ranks the hosts take."""
        return sum(host.slots for host in self.hosts)

    @property
    def size(self) -> int:
        """How many ranks to start."""
        return self.num_workers if self.num_workers is not None else max(1, self.slots)

    @property
    def is_local(self) -> bool:
        """Whether all ranks run on this machine."""
        return all(host.is_this_machine for host in self.hosts)

    @property
    def stays_here(self) -> bool:
        """Whether all ranks run on this machine, whatever starts them: a cluster's allocation may have others."""
        return self.is_local and (bool(self.hosts) or not any(os.environ.get(name) for name in ALLOCATIONS))

    def chosen_launcher(self) -> str:
        """``launcher``, with ``auto`` replaced by what RINGLET_LAUNCHER says, if anything."""
        wish = os.environ.get(LAUNCHER_VARIABLE) or "auto"
        if self.launcher != "auto":
            return self.launcher
        if wish not in LAUNCHERS:
            raise UsageError(f"{LAUNCHER_VARIABLE}={wish[:40]!r} is no launcher. Known: {', '.join(LAUNCHERS)}")
        return wish


def must_start(plan: LaunchPlan) -> bool:
    """Whether ranks have to be started: not within a rank that mpiexec, srun, torchrun or Ringlet started already.

    Raises :class:`UsageError` if there are other ranks than the plan asks for, or ranks that cannot be started again.
    """
    world = environments.detect()
    if world is None:
        return True
    if plan.num_workers not in (None, world.size):
        raise UsageError(
            f"{plan.num_workers} workers are asked for, but this process is rank {world.rank} of {world.size} that a "
            f"launcher ({world.launcher}) has started: leave out -n, or leave out the launcher"
        )
    if plan.restarts and not is_rank():
        raise UsageError(
            f"this process is rank {world.rank} of {world.size} that a launcher ({world.launcher}) has started, which "
            f"--restarts cannot start again: leave out --restarts, or leave out the launcher and give -n"
        )
    return False


# -- hosts, from ``--hosts`` or a host file ----------------------------------------------------------------------------
def parse_hosts(text: str) -> tuple[Host, ...]:
    """``a:4,b:4``; without a number a host takes one rank."""
    return _distinct(_parse_host(part.strip()) for part in text.split(","))


def read_hostfile(path: str | Path) -> tuple[Host, ...]:
    """One host a line, ``name``, ``name:4`` or ``name slots=4``; ``#`` begins a comment."""
    try:
        if Path(path).stat().st_size > MAX_HOSTFILE_BYTES:
            raise UsageError(f"host file '{path}' has more than {MAX_HOSTFILE_BYTES:,} bytes: expected one host a line")
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"host file '{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"host file '{path}' is no text: expected one host a line") from error
    entries = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    hosts = []
    for number, entry in entries:
        try:
            hosts += [_parse_line(entry)] if entry else []
        except UsageError as error:
            raise UsageError(f"host file '{path}', line {number}: {error}") from error
    if not hosts:
        raise UsageError(f"host file '{path}' names no host: expected lines such as `node1 slots=4`")
    return _distinct(hosts)


def _parse_line(line: str) -> Host:
    name, *rest = line.split()
    if not rest:
        return _parse_host(name)
    slots = [word.removeprefix("slots=") for word in rest if word.startswith("slots=")]
    unknown = [word for word in rest if not word.startswith(("slots=", "max_slots=", "max-slots="))]
    if len(slots) > 1 or unknown:
        raise UsageError(f"{line[:80]!r} is not understood: expected `name`, `name:4` or `name slots=4`")
    return Host(name, _number(slots[0], name) if slots else 1)


def _parse_host(text: str) -> Host:
    name, colon, slots = text.partition(":")
    return Host(name, _number(slots, name) if colon else 1)


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise UsageError(f"the number of ranks for host {name[:80]!r} is {text[:80]!r}: expected a whole number as in a:4")


def _distinct(hosts: Iterable[Host]) -> tuple[Host, ...]:
    found: dict[str, Host] = {}
    for host in hosts:
        if host.name in found:
            raise UsageError(f"host '{host.name}' is named twice: name it once, with all its ranks")
        found[host.name] = host
    return tuple(found.values())
