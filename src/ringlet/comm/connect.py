"""Find the other ranks of this job, whoever started them, and make the communicator that fits."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from ringlet.comm import environments
from ringlet.comm.contract import Communicator
from ringlet.comm.single import SingleCommunicator
from ringlet.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommunicationError, RingletError, UnknownNameError
from ringlet.forks import Owner

KINDS = ("auto", "single", "node", "mpi", "torch")
"""Names of communicators; ``auto`` picks one by the launcher."""

_BY_LAUNCHER = {"local": "node", "torchrun": "torch", "mpich": "mpi", "openmpi": "mpi", "slurm": "mpi"}


def connect(kind: str = "auto", *, gpus: bool = True) -> Communicator:
    """The communicator of all ranks of this job; every rank must call.

    ``auto`` goes by the launcher: shared memory under Ringlet's own, MPI under mpiexec, mpirun and srun,
    ``torch.distributed`` under torchrun, and a single rank where there is no launcher. Without ``gpus`` none is used,
    as NCCL would under torchrun.
    """
    if kind not in KINDS:
        raise UnknownNameError("communicator", kind, KINDS)
    world = environments.detect()
    chosen = _choose(world) if kind == "auto" else kind
    if chosen == "single":
        return SingleCommunicator()
    if chosen == "node":
        return _join_node(world)
    if chosen == "mpi":
        from ringlet.comm.mpi import join_mpi

        return join_mpi(world)
    from ringlet.comm.torch_distributed import join_torch

    return join_torch(world, gpus=gpus)


def abort_on_exception(communicator: Communicator) -> None:
    """From now on an exception that nobody catches ends all ranks, after its report: the others would wait forever."""

    owner = Owner()

    def report_and_abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not owner.is_here:  # the end of a copy is no failure of the rank
            sys.__excepthook__(kind, error, trace)
            return
        try:
            print_failure(communicator, kind, error, trace)
        finally:
            communicator.abort(exit_code_of(error))

    if communicator.size > 1:
        sys.excepthook = report_and_abort


def print_failure(
    communicator: Communicator, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Say on the error output which rank failed and how: a user's mistake in a line, anything else with its trace."""
    where = f"rank {communicator.rank} of {communicator.size} on {os.uname().nodename} failed:\n"
    lines = [f"{error}\n"] if isinstance(error, RingletError) else traceback.format_exception(kind, error, trace)
    sys.stderr.write(where + "".join(lines))
    sys.stderr.flush()


def exit_code_of(error: BaseException) -> int:
    """The code with which a process leaves after ``error``."""
    if isinstance(error, RingletError):
        return error.exit_code
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED


def _choose(world: environments.World | None) -> str:
    return "single" if world is None else _BY_LAUNCHER[world.launcher]


def _join_node(world: environments.World | None) -> Communicator:
    if world is None or world.launcher != "local":
        raise CommunicationError(
            "the communicator 'node' was asked for, but this process was not started by Ringlet's own launcher "
            "(RINGLET_JOB is not set). Start it with: ringlet run --launcher local -n 2 script.py"
        )
    from ringlet.comm.node import join_node

    return join_node(os.environ["RINGLET_JOB"], world.rank, world.size)
