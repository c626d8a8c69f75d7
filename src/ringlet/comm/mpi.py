"""MPI, any that mpi4py was built for: a wire between machines and the way to join a job under mpiexec or srun.

Only MPI calls on plain buffers are used. Exchanges between pairs of ranks are cut into pieces that old versions of MPI,
which count in 32 bits, can send.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ringlet.comm.collective import Array, Op
from ringlet.comm.contract import Communicator
from ringlet.comm.environments import World, launcher_of
from ringlet.comm.layered import LayeredCommunicator, cut_machines, ranks_per_node_from_environment
from ringlet.comm.window import Window
from ringlet.comm.wire import Bytes, Wire
from ringlet.errors import CommunicationError
from ringlet.forks import Owner, call_last
from ringlet.output_streams import drain_streams

MAX_COUNT = 1 << 30
"""Elements or bytes of one MPI call."""
PROGRESS_SECONDS = 2e-4
"""Between two looks of the thread that serves a window."""


def join_mpi(world: World | None = None) -> Communicator:
    """The communicator of all ranks that MPI started; ``world`` is what the launcher's variables say. All must call."""
    communicator = _load_mpi().COMM_WORLD
    if world is not None and communicator.Get_size() != world.size:
        raise CommunicationError(_explain_mismatch(world, communicator.Get_size()))
    return mpi_communicator(communicator, ranks_per_node_from_environment())


def mpi_communicator(communicator: Any, ranks_per_node: int | None = None) -> Communicator:
    """A communicator of the ranks of an mpi4py communicator, which is duplicated; every rank of it must call.

    ``ranks_per_node`` cuts machines into smaller ones.
    """
    wire = MpiWire(communicator.Dup())
    return LayeredCommunicator(wire, cut_machines(wire.machines(), ranks_per_node))


def threads_supported() -> bool:
    """Whether MPI was initialised for threads that call it at the same time."""
    mpi = _load_mpi()
    return bool(mpi.Query_thread() == mpi.THREAD_MULTIPLE)


@final
class MpiWire(Wire):
    """Bytes over an mpi4py communicator that no one else uses."""

    name = "mpi"

    def __init__(self, communicator: Any) -> None:
        self._mpi = _load_mpi()
        self._communicator = communicator
        self.rank = communicator.Get_rank()
        self.size = communicator.Get_size()

    def reduces(self, dtype: np.dtype[Any], op: Op) -> bool:
        """Booleans and whole numbers; floating and complex sums, floating products.

        Not minima and maxima of floating numbers (MPI leaves NaN and signed zeros open) nor complex products, whose
        rounding may depend on which factor comes first.
        """
        if not dtype.isnative:
            return False
        if dtype.kind in "biu":
            return True
        adds = op in (Op.SUM, Op.AVERAGE)
        return (dtype.kind == "f" and dtype.itemsize >= 4 and (adds or op is Op.PRODUCT)) or (
            dtype.kind == "c" and adds
        )

    def allreduce(self, array: Array, op: Op) -> None:
        """MPI_Allreduce in place; booleans as maxima (or) and minima (and) of bytes."""
        if array.dtype.kind == "b":
            array = array.view(np.uint8)
            op = Op.MAX if op in (Op.SUM, Op.MAX) else Op.MIN
        operations = {
            Op.SUM: self._mpi.SUM,
            Op.MIN: self._mpi.MIN,
            Op.MAX: self._mpi.MAX,
            Op.PRODUCT: self._mpi.PROD,
        }
        for piece in _pieces(array):
            self._communicator.Allreduce(self._mpi.IN_PLACE, piece, operations[op])

    def broadcast(self, data: Bytes, root: int) -> None:
        """MPI_Bcast."""
        for piece in _pieces(data):
            self._communicator.Bcast([piece, self._mpi.BYTE], root)

    def allgather(self, data: Bytes, received: Bytes, counts: Sequence[int]) -> None:
        """MPI_Allgatherv; what is too large for it is broadcast by each rank in turn."""
        starts = np.cumsum([0, *counts])
        if starts[-1] <= MAX_COUNT:
            target = [received, list(counts), starts[:-1].tolist(), self._mpi.BYTE]
            self._communicator.Allgatherv([data, self._mpi.BYTE], target)
            return
        received[starts[self.rank] : starts[self.rank + 1]] = data
        for root in range(self.size):
            self.broadcast(received[starts[root] : starts[root + 1]], root)

    def alltoall(self, data: Bytes, counts: Sequence[int], received: Bytes, received_counts: Sequence[int]) -> None:
        """One exchange per pair of ranks: each pair knows by itself how many pieces it needs."""
        sent_starts, received_starts = np.cumsum([0, *counts]), np.cumsum([0, *received_counts])
        requests = []
        for distance in range(1, self.size):
            source = (self.rank - distance) % self.size
            block = received[received_starts[source] : received_starts[source + 1]]
            requests += [self._communicator.Irecv([piece, self._mpi.BYTE], source) for piece in _pieces(block)]
        for distance in range(1, self.size):
            target = (self.rank + distance) % self.size
            block = data[sent_starts[target] : sent_starts[target + 1]]
            requests += [self._communicator.Isend([piece, self._mpi.BYTE], target) for piece in _pieces(block)]
        own = slice(received_starts[self.rank], received_starts[self.rank + 1])
        received[own] = data[sent_starts[self.rank] : sent_starts[self.rank + 1]]
        self._mpi.Request.Waitall(requests)

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._communicator.Barrier()

    def machines(self) -> list[int]:
        """What MPI says about shared memory: the lowest rank of each machine stands for it."""
        local = self._communicator.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank)
        lowest = np.array([self.rank], np.int64)
        local.Bcast(lowest, 0)
        local.Free()
        gathered = np.zeros(self.size, np.int64)
        self._communicator.Allgather(lowest, gathered)
        return [int(number) for number in gathered]

    def subset(self, ranks: Sequence[int]) -> MpiWire:
        """MPI_Comm_create_group, which only its members call."""
        everyone = self._communicator.Get_group()
        chosen = everyone.Incl(list(ranks))
        communicator = self._communicator.Create_group(chosen)
        chosen.Free()
        everyone.Free()
        return MpiWire(communicator)

    def window(self, num_bytes: int) -> Window:
        """MPI_Win_allocate."""
        return MpiWindow(self._mpi, self._communicator, num_bytes)

    def can_duplicate(self) -> bool:
        """Whether threads may call MPI at the same time."""
        return threads_supported()

    def abort(self, exit_code: int) -> None:
        """MPI_Abort of the whole job, once mpiexec has read what this rank printed."""
        drain_streams()
        self._mpi.COMM_WORLD.Abort(exit_code)


@final
class MpiWindow(Window):
    """Memory of rank 0, locked and copied by MPI's passive one-sided calls; all ranks must call the constructor.

    Who is within holds the window's exclusive lock and a copy, which is written back at the end. Many an MPI serves
    such calls only while their target is inside of MPI itself. So a thread of rank 0 looks in every now and then: what
    rank 0 computes, or waits for in shared memory, keeps no one waiting.
    """

    def __init__(self, mpi: Any, communicator: Any, num_bytes: int) -> None:
        if not threads_supported():
            raise CommunicationError(
                "a window between machines needs an MPI whose calls may come from several threads at once "
                "(MPI_THREAD_MULTIPLE), which this one does not allow: use another MPI, or one machine"
            )
        self.num_bytes = num_bytes
        self._mpi = mpi
        self._window = mpi.Win.Allocate(num_bytes if communicator.Get_rank() == 0 else 0, 1, comm=communicator)
        self._copy = np.zeros(num_bytes, np.uint8)
        self._owner = Owner()
        self._rank = communicator.Get_rank()
        if communicator.Get_rank() == 0:
            self._window.Lock(0, mpi.LOCK_EXCLUSIVE)
            self._transfer(self._window.Put, self._copy)
            self._window.Unlock(0)
            self._serve(communicator)
        communicator.Barrier()

    @contextmanager
    def locked(self, num_bytes: int | None = None) -> Iterator[Array]:
        """A copy of the window."""
        self._owner.check("the lock of a window", self._rank)
        part = self._copy[:num_bytes]
        self._window.Lock(0, self._mpi.LOCK_EXCLUSIVE)
        try:
            self._transfer(self._window.Get, part)
            self._window.Flush(0)
            yield part
            self._transfer(self._window.Put, part)
        finally:
            self._window.Unlock(0)

    def _serve(self, communicator: Any) -> None:
        """Start the thread that lets MPI make progress; it ends before MPI does."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(PROGRESS_SECONDS):
                communicator.Iprobe()

        thread = threading.Thread(target=look, name="ringlet-window", daemon=True)
        thread.start()
        owner = self._owner
        finish = weakref.finalize(self, lambda: over.set() if owner.is_here else None)

        def end() -> None:
            if owner.is_here:
                finish()
                thread.join()

        atexit.register(end)

    def _transfer(self, call: Any, data: Array) -> None:
        start = 0
        for piece in _pieces(data):
            call([piece, self._mpi.BYTE], 0, start)
            start += piece.size


def _pieces(array: Array) -> Iterator[Array]:
    """Consecutive pieces of a flat array, none if it is empty."""
    for start in range(0, array.size, MAX_COUNT):
        yield array[start : start + MAX_COUNT]


def _load_mpi() -> Any:
    """mpi4py's module; importing it initialises MPI, for threads.

    mpi4py would also end MPI in processes that were forked from this one, in the name of the rank.
    """
    is_new = "mpi4py.MPI" not in sys.modules
    try:
        import mpi4py

        if is_new:
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommunicationError(
            f"MPI cannot be used ({error}). Install mpi4py and an MPI: pip install 'ringlet[mpi]', or on a cluster "
            "load its MPI module and build for it: pip install --no-binary mpi4py mpi4py"
        ) from error
    if is_new:
        call_last(lambda: MPI.Finalize() if MPI.Is_initialized() and not MPI.Is_finalized() else None)
    return MPI


def _explain_mismatch(world: World, size: int) -> str:
    launcher = launcher_of(world)
    library = " ".join(str(_load_mpi().Get_library_version()).split("\n", 1)[0].replace("\0", "").split())
    return (
        f"this process was started as rank {world.rank} of {world.size} by {launcher.program} "
        f"({launcher.size}={world.size}), but MPI sees {size} rank(s): "
        f"mpi4py uses another MPI ({library}) than the launcher belongs to, so the ranks cannot find each other. "
        "Start with the mpiexec of mpi4py's MPI (pip's mpich puts it beside python), or build mpi4py for the "
        "launcher's MPI: pip install --force-reinstall --no-binary mpi4py mpi4py"
    )
