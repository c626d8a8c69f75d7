"""Which launcher started this process, and as which rank of how many.

Every launcher tells its processes their rank by environment launcher. :func:`detect` asks in this order, the innermost
launcher first, because launchers are nested in practice (``srun torchrun``, ``mpiexec`` inside a Slurm allocation) and
the variables of the outer one are inherited:

1. ``local``: Ringlet's own processes on one machine (``RINGLET_JOB``, ``RINGLET_RANK``, ``RINGLET_SIZE``)
2. ``torchrun``: ``TORCHELASTIC_RUN_ID`` with ``RANK``, ``WORLD_SIZE``, …
3. ``openmpi``: ``OMPI_COMM_WORLD_RANK``, …
4. ``mpich``: ``PMI_RANK``, … of MPICH's Hydra, Intel MPI, MVAPICH and Cray
5. ``slurm``: ``SLURM_PROCID`` of a step with more than one task; a batch script or an interactive shell is none
6. ``torchrun``, started by hand: ``RANK``, ``WORLD_SIZE`` and ``MASTER_ADDR``
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from ringlet.errors import CommunicationError


@dataclass(frozen=True)
class World:
    """What the launcher said: this process is ``rank`` of ``size``; on its machine ``local_rank`` of ``local_size``."""

    launcher: str
    """``local``, ``mpich``, ``openmpi``, ``slurm`` or ``torchrun``."""
    rank: int
    size: int
    local_rank: int | None = None
    local_size: int | None = None


@dataclass(frozen=True)
class Launcher:
    """How a launcher is recognised, and what goes with it. It is there if all variables of ``present`` are set."""

    name: str
    communicator: str
    """The kind of communicator that fits."""
    program: str
    """What people call it."""
    present: tuple[str, ...]
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    finds_mpi: bool = False
    """Whether MPI finds the other ranks wherever its variables are set."""


JOB, RANK, SIZE = "RINGLET_JOB", "RINGLET_RANK", "RINGLET_SIZE"
"""By which Ringlet's own launcher tells its ranks the directory of the job and their place in it."""
LAUNCHER_PID = "RINGLET_LAUNCHER_PID"
"""The process of Ringlet's own launcher."""
_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
LAUNCHERS = (
    Launcher("local", "node", "`ringlet run`", (JOB,), RANK, SIZE, RANK, SIZE),
    Launcher("torchrun", "torch", "torchrun", ("TORCHELASTIC_RUN_ID",), *_TORCH),
    Launcher(
        "openmpi",
        "mpi",
        "mpirun of Open MPI",
        ("OMPI_COMM_WORLD_RANK",),
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        finds_mpi=True,
    ),
    Launcher(
        "mpich",
        "mpi",
        "mpiexec of MPICH, Intel MPI or a relative",
        ("PMI_RANK",),
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        finds_mpi=True,
    ),
    Launcher(
        "slurm",
        "mpi",
        "srun",
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
    ),
    Launcher("torchrun", "torch", "torchrun", ("RANK", "WORLD_SIZE", "MASTER_ADDR"), *_TORCH),
)
"""All that are recognised, in the order in which they are asked for."""

VARIABLES = frozenset(
    name
    for entry in LAUNCHERS
    for name in ("PMI_FD", *entry.present, entry.rank, entry.size, entry.local_rank, entry.local_size)
) - {""}
"""Every variable that is looked at: what a launcher must not hand down from a job around it."""


def detect(environ: Mapping[str, str] = os.environ) -> World | None:
    """The world this process was started into; None if it was started alone.

    Raises :class:`CommunicationError` if a launcher's variables are incomplete or make no sense.
    """
    for launcher in LAUNCHERS:
        if not all(environ.get(name) for name in launcher.present):
            continue
        world = _read(launcher, environ)
        if launcher.name != "slurm" or world.size > 1:
            return world
    return None


def launcher_of(world: World) -> Launcher:
    """The description of the launcher that has started a world."""
    return next(launcher for launcher in LAUNCHERS if launcher.name == world.launcher)


def has_mpi(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI finds the other ranks, if this process uses it; also where Ringlet's own launcher started it."""
    return any(environ.get(launcher.rank) for launcher in LAUNCHERS if launcher.finds_mpi)


def tell_as_torchrun(world: World, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what torchrun would have set: programs and libraries ask there whether they are one of many.

    How ranks meet (``MASTER_ADDR``) is not among it: that is up to the backend. What is set already stays.
    """
    numbers = (world.rank, world.size, world.local_rank, world.local_size)
    for name, number in zip(_TORCH, numbers, strict=True):
        if number is not None:
            environ.setdefault(name, str(number))


def _read(launcher: Launcher, environ: Mapping[str, str]) -> World:
    rank = _number(launcher, launcher.rank, environ)
    size = _number(launcher, launcher.size, environ)
    if not 0 <= rank < size:
        raise CommunicationError(
            f"{launcher.rank}={rank} and {launcher.size}={size} in the environment make no sense: a rank is at "
            f"least 0 and less than the number of ranks. Start all ranks by one launcher, or unset both variables"
        )
    local_rank = _optional(launcher, launcher.local_rank, environ)
    local_size = _optional(launcher, launcher.local_size, environ)
    if local_size is not None and not (local_size <= size and 0 <= (local_rank or 0) < local_size):
        raise CommunicationError(
            f"{launcher.local_rank}={local_rank} and {launcher.local_size}={local_size} in the environment do not "
            f"fit {launcher.size}={size}. Start all ranks by one launcher, or unset these variables"
        )
    return World(launcher.name, rank, size, local_rank, local_size)


def _optional(launcher: Launcher, name: str, environ: Mapping[str, str]) -> int | None:
    return _number(launcher, name, environ) if name and environ.get(name) else None


def _number(launcher: Launcher, name: str, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    found = f"{name}={text[:40]!r} is no whole number" if text else f"{name} is missing"
    raise CommunicationError(
        f"this process seems to have been started by a launcher ({launcher.present[0]} is set), but {found}. "
        f"Start it by mpiexec, srun, torchrun or `ringlet run`, or unset {launcher.present[0]} to run it alone"
    )


# -- what the ranks of one machine open stays on that machine --------------------------------------------------------
ADDRESS = "127.0.0.1"
INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
_INTERFACE_VARIABLES = (
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
    "FI_TCP_IFACE",
    "FI_SOCKETS_IFACE",
)
"""Gloo, NCCL, TensorPipe, and UCX and libfabric below an MPI, listen on the first real network interface they find,
also where all ranks share a machine. These tell them to use another."""


def loopback_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for ranks that are all on one machine; those that are set already are not among them.

    None at all if ``MASTER_ADDR`` says that the program meets others elsewhere by itself.
    """
    elsewhere = environ.get("MASTER_ADDR", ADDRESS) not in (ADDRESS, "localhost", "::1")
    if elsewhere or INTERFACE not in {name for _, name in socket.if_nameindex()}:
        return {}
    return {name: INTERFACE for name in _INTERFACE_VARIABLES if not environ.get(name)}


def stay_on_this_machine(environ: MutableMapping[str, str]) -> None:
    """Set them in this process, for libraries that it has not initialised yet."""
    environ.update(loopback_environment(environ))
