"""The communicator of the whole process, for scripts: ``ringlet.init()``, ``ringlet.rank()``, ``ringlet.allreduce(x)``.

:func:`connect` finds the other ranks of this job, whatever started them, and makes the communicator that fits. All this
works in any script, under any launcher and without one (then there is one rank). Values may be arrays or anything NumPy
makes arrays of; results are NumPy arrays, and numbers for numbers. Every rank must call the same functions in the same
order.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.comm import environments
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.comm.single import SingleCommunicator
from ringlet.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommunicationError, RingletError, UnknownNameError
from ringlet.forks import Owner

KINDS = ("auto", "single", "node", "mpi", "torch")
"""Names of communicators; ``auto`` picks one by the launcher."""

_connection: Communicator | None = None
"""Made once: launchers let ranks meet only once."""
_communicator: Communicator | None = None
"""The connection while it is in use."""


class NotInitializedError(RingletError, ValueError):
    """A question about ranks before :func:`init`."""


def init(kind: str = "auto", *, gpus: bool = True) -> None:
    """Find the other ranks; every rank must call. Harmless when repeated. ``gpus``: see :func:`connect`.

    From now on an exception that no one catches ends all ranks: the others would wait for this one forever.
    """
    global _communicator, _connection
    if _communicator is not None:
        return
    if _connection is None:
        _connection = connect(kind, gpus=gpus)
        abort_on_exception(_connection)
    _communicator = _connection


def use(communicator: Communicator) -> Communicator:
    """Let all functions here speak of these ranks instead, until :func:`shutdown`: a group of the job, for example."""
    global _communicator
    if _connection is None:
        abort_on_exception(communicator)
    _communicator = communicator
    return communicator


def shutdown() -> None:
    """Be done with the other ranks, until :func:`init` is called again. The end of the process does it too."""
    global _communicator
    _communicator = None


@atexit.register
def _close() -> None:
    shutdown()
    if _connection is not None:
        _connection.close()


def is_initialized() -> bool:
    """Whether :func:`init` has been called."""
    return _communicator is not None


def communicator(*, gpus: bool = True) -> Communicator:
    """The communicator of all ranks; calls :func:`init` if no one has."""
    init(gpus=gpus)
    return _initialized()


def rank() -> int:
    """This process's number among all, from 0."""
    return _initialized().rank


def size() -> int:
    """The number of all processes."""
    return _initialized().size


def local_rank() -> int:
    """This process's number on its machine, from 0."""
    return _initialized().local_rank


def local_size() -> int:
    """The number of processes on this machine."""
    return _initialized().local_size


def cross_rank() -> int:
    """The number of this process's machine, counted among those that have a process of its local rank."""
    return _initialized().cross.rank


def cross_size() -> int:
    """The number of machines that have a process of this one's local rank."""
    return _initialized().cross.size


def allreduce(array: ArrayLike, op: Op | str = Op.AVERAGE, *, out: Array | None = None) -> Any:
    """``array`` combined over all ranks, element by element: ``average``, ``sum``, ``min``, ``max`` or ``product``."""
    return _like(array, _initialized().allreduce(np.asarray(array), _op(op), out=out), out)


def broadcast(array: ArrayLike, root: int = 0, *, out: Array | None = None) -> Any:
    """``array`` of rank ``root``; the others pass one of the same shape and dtype."""
    return _like(array, _initialized().broadcast(np.asarray(array), root, out=out), out)


def allgather(array: ArrayLike) -> Array:
    """All ranks' arrays one after the other along axis 0, whose length may differ; a number counts as one row."""
    return _initialized().allgather(np.atleast_1d(np.asarray(array)))


def reduce_scatter(array: ArrayLike, op: Op | str = Op.AVERAGE) -> Array:
    """This rank's share of axis 0 of the combined arrays."""
    return _initialized().reduce_scatter(np.asarray(array), _op(op))


def alltoall(array: ArrayLike, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
    """Send ``splits[r]`` rows to each rank r (default: equal parts); gives what came and how much from each."""
    return _initialized().alltoall(np.asarray(array), splits)


def barrier() -> None:
    """Return when all ranks have come here."""
    _initialized().barrier()


def allreduce_async(array: ArrayLike, op: Op | str = Op.AVERAGE, *, out: Array | None = None) -> Handle:
    """Start :func:`allreduce`; ``handle.wait()`` gives its result."""
    handle = _initialized().start("allreduce", np.asarray(array), _op(op), out=out)
    return _ConvertingHandle(handle, lambda result: _like(array, result, out))


def broadcast_async(array: ArrayLike, root: int = 0, *, out: Array | None = None) -> Handle:
    """Start :func:`broadcast`; ``handle.wait()`` gives its result."""
    handle = _initialized().start("broadcast", np.asarray(array), root, out=out)
    return _ConvertingHandle(handle, lambda result: _like(array, result, out))


def allgather_async(array: ArrayLike) -> Handle:
    """Start :func:`allgather`; ``handle.wait()`` gives its result."""
    return _initialized().start("allgather", np.atleast_1d(np.asarray(array)))


def reduce_scatter_async(array: ArrayLike, op: Op | str = Op.AVERAGE) -> Handle:
    """Start :func:`reduce_scatter`; ``handle.wait()`` gives its result."""
    return _initialized().start("reduce_scatter", np.asarray(array), _op(op))


def alltoall_async(array: ArrayLike, splits: Sequence[int] | None = None) -> Handle:
    """Start :func:`alltoall`; ``handle.wait()`` gives its result."""
    return _initialized().start("alltoall", np.asarray(array), splits)


def barrier_async() -> Handle:
    """Start :func:`barrier`; ``handle.wait()`` returns when all ranks have started it."""
    return _initialized().start("barrier")


@final
class _ConvertingHandle:
    """A handle whose result is converted by ``convert``."""

    def __init__(self, handle: Handle, convert: Callable[[Any], Any]) -> None:
        self._handle = handle
        self._convert = convert

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return self._handle.done()

    def wait(self) -> Any:
        """The result; raises what the collective raised."""
        return self._convert(self._handle.wait())


def _initialized() -> Communicator:
    if _communicator is None:
        raise NotInitializedError("ringlet has not been initialised: call ringlet.init() first, on every rank")
    return _communicator


def _op(op: Op | str) -> Op:
    if isinstance(op, Op):
        return op
    names = [known.value for known in Op]
    if op not in names:
        raise UnknownNameError("operation", str(op), names)
    return Op(op)


def _like(value: ArrayLike, result: Array, out: Array | None) -> Any:
    """The result as the caller gave the value: Python's numbers and NumPy's for the same, arrays for the rest."""
    if out is not None or isinstance(value, np.ndarray) or result.ndim:
        return result
    return result[()] if isinstance(value, np.generic) else result.item()


# -- how ranks find each other, and what becomes of the others when one fails ----------------------------------------
def connect(kind: str = "auto", *, gpus: bool = True) -> Communicator:
    """The communicator of all ranks of this job; every rank must call.

    ``auto`` goes by the launcher: shared memory under Ringlet's own, MPI under mpiexec, mpirun and srun,
    ``torch.distributed`` under torchrun, and a single rank where there is no launcher. Without ``gpus`` none is used,
    as NCCL would under torchrun.
    """
    if kind not in KINDS:
        raise UnknownNameError("communicator", kind, KINDS)
    world = environments.detect()
    chosen = kind
    if kind == "auto":
        chosen = "single" if world is None else environments.launcher_of(world).communicator
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
    """From now on an exception that no one catches ends all ranks, after its report: the others would wait forever."""
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


def _join_node(world: environments.World | None) -> Communicator:
    if world is None or world.launcher != "local":
        raise CommunicationError(
            "the communicator 'node' was asked for, but this process was not started by Ringlet's own launcher "
            "(RINGLET_JOB is not set). Start it with: ringlet run --launcher local -n 2 script.py"
        )
    from ringlet.comm.node import join_node

    return join_node(os.environ[environments.JOB], world.rank, world.size)
