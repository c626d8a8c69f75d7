"""Who this process is among the others: Horovod's questions. Before ``init`` most of them raise a ValueError."""

from __future__ import annotations

from importlib.util import find_spec

from ringlet.comm import world
from ringlet.named import session


def rank() -> int:
    """This process's number among all, from 0."""
    return session.engine().rank


def size() -> int:
    """The number of all processes."""
    return session.engine().size


def local_rank() -> int:
    """This process's number on its machine, from 0."""
    session.engine()
    return world.local_rank()


def local_size() -> int:
    """The number of processes on this machine."""
    session.engine()
    return world.local_size()


def cross_rank() -> int:
    """The number of this process's machine, counted among those that have a process of its local rank."""
    session.engine()
    return world.cross_rank()


def cross_size() -> int:
    """The number of machines that have a process of this one's local rank."""
    session.engine()
    return world.cross_size()


def is_homogeneous() -> bool:
    """Whether all machines have the same number of processes."""
    session.engine()
    return len(set(world.communicator().local_sizes)) == 1


def mpi_built() -> bool:
    """Whether MPI can be used: mpi4py is installed."""
    return find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    """Whether ranks talk through MPI."""
    session.engine()
    return world.communicator().name == "mpi"


def mpi_threads_supported() -> bool:
    """Whether several threads may talk at once: collectives from any thread are put in order, so they may."""
    session.engine()
    return True


def gloo_built() -> bool:
    """Whether Gloo can be used: torch is installed."""
    return find_spec("torch") is not None


def gloo_enabled() -> bool:
    """Whether ranks talk through ``torch.distributed``."""
    session.engine()
    return world.communicator().name == "torch"


def nccl_built() -> int:
    """Ringlet does not use NCCL."""
    return 0


def ddl_built() -> bool:
    """Ringlet does not use DDL."""
    return False


def ccl_built() -> bool:
    """Ringlet does not use oneCCL."""
    return False


def cuda_built() -> bool:
    """Ringlet exchanges in the memory of the CPU."""
    return False


def rocm_built() -> bool:
    """Ringlet exchanges in the memory of the CPU."""
    return False
