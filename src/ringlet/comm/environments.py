"""Which launcher started this process, and as which rank of how many.

Every launcher tells its processes their rank by environment variables. :func:`detect` asks in this order, the innermost
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
class _Variables:
    """The variables by which a launcher speaks; it is there if all of ``present`` are set."""

    launcher: str
    present: tuple[str, ...]
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""


_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_LAUNCHERS = (
    _Variables("local", ("RINGLET_JOB",), "RINGLET_RANK", "RINGLET_SIZE", "RINGLET_RANK", "RINGLET_SIZE"),
    _Variables("torchrun", ("TORCHELASTIC_RUN_ID",), *_TORCH),
    _Variables(
        "openmpi",
        ("OMPI_COMM_WORLD_RANK",),
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Variables("mpich", ("PMI_RANK",), "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Variables(
        "slurm", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"
    ),
    _Variables("torchrun", ("RANK", "WORLD_SIZE", "MASTER_ADDR"), *_TORCH),
)

VARIABLES = frozenset(
    name
    for entry in _LAUNCHERS
    for name in ("PMI_FD", *entry.present, entry.rank, entry.size, entry.local_rank, entry.local_size)
) - {""}
"""Every variable that is looked at: what a launcher must not hand down from a job around it."""


def detect(environ: Mapping[str, str] = os.environ) -> World | None:
    """The world this process was started into; None if it was started alone.

    Raises :class:`CommunicationError` if a launcher's variables are incomplete or make no sense.
    """
    for variables in _LAUNCHERS:
        if not all(environ.get(name) for name in variables.present):
            continue
        world = _read(variables, environ)
        if variables.launcher != "slurm" or world.size > 1:
            return world
    return None


def has_mpi(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI finds the other ranks, if this process uses it; also where Ringlet's own launcher started it."""
    return bool(environ.get("PMI_RANK") or environ.get("OMPI_COMM_WORLD_RANK"))


def tell_as_torchrun(world: World, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what torchrun would have set: programs and libraries ask there whether they are one of many.

    How ranks meet (``MASTER_ADDR``) is not among it: that is up to the backend. What is set already stays.
    """
    numbers = (world.rank, world.size, world.local_rank, world.local_size)
    for name, number in zip(_TORCH, numbers, strict=True):
        if number is not None:
            environ.setdefault(name, str(number))


def _read(variables: _Variables, environ: Mapping[str, str]) -> World:
    rank = _number(variables, variables.rank, environ)
    size = _number(variables, variables.size, environ)
    if not 0 <= rank < size:
        raise CommunicationError(
            f"{variables.rank}={rank} and {variables.size}={size} in the environment make no sense: a rank is at "
            f"least 0 and less than the number of ranks. Start all ranks by one launcher, or unset both variables"
        )
    local_rank = _optional(variables, variables.local_rank, environ)
    local_size = _optional(variables, variables.local_size, environ)
    if local_size is not None and not (local_size <= size and 0 <= (local_rank or 0) < local_size):
        raise CommunicationError(
            f"{variables.local_rank}={local_rank} and {variables.local_size}={local_size} in the environment do not "
            f"fit {variables.size}={size}. Start all ranks by one launcher, or unset these variables"
        )
    return World(variables.launcher, rank, size, local_rank, local_size)


def _optional(variables: _Variables, name: str, environ: Mapping[str, str]) -> int | None:
    return _number(variables, name, environ) if name and environ.get(name) else None


def _number(variables: _Variables, name: str, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    found = f"{name}={text[:40]!r} is no whole number" if text else f"{name} is missing"
    raise CommunicationError(
        f"this process seems to have been started by a launcher ({variables.present[0]} is set), but {found}. "
        f"Start it by mpiexec, srun, torchrun or `ringlet run`, or unset {variables.present[0]} to run it alone"
    )
