"""The communicator of the whole process, for scripts: ``ringlet.init()``, ``ringlet.rank()``, ``ringlet.allreduce(x)``.

Works in any script, under any launcher and without one (then there is one rank). Values may be arrays or anything NumPy
makes arrays of; results are NumPy arrays, and numbers for numbers. Every rank must call the same functions in the same
order.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.comm.connect import abort_on_exception, connect
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.errors import RingletError, UnknownNameError

_connection: Communicator | None = None
"""Made once: launchers let ranks meet only once."""
_communicator: Communicator | None = None
"""The connection while it is in use."""


class NotInitializedError(RingletError, ValueError):
    """A question about ranks before :func:`init`."""


def init(kind: str = "auto", *, gpus: bool = True) -> None:
    """Find the other ranks; every rank must call. Harmless when repeated. ``gpus``: see :func:`connect`.

    From now on an exception that nobody catches ends all ranks: the others would wait for this one forever.
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
    """The communicator of all ranks; calls :func:`init` if nobody has."""
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
