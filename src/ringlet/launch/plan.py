"""What is to be started: how many ranks, where, by which launcher, and where their output goes."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ringlet.comm import environments
from ringlet.errors import UnknownNameError, UsageError
from ringlet.launch.hosts import Host
from ringlet.launch.messages import is_rank

LAUNCHERS = ("auto", "mpi", "local")
LAUNCHER_VARIABLE = "RINGLET_LAUNCHER"
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "LOADL_HOSTFILE",
               "COBALT_NODEFILE", "HYDRA_HOST_FILE")  # fmt: skip
"""Where they are set, mpiexec and srun take the machines from there."""
MAX_WORKERS = 65536
MAX_THREADS = 4096
MAX_RESTARTS = 10_000


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
    """Hosts that do not answer are left out as long as so many workers remain; default: none is left out."""

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
