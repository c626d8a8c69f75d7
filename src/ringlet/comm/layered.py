"""Shared memory inside each machine, a wire between machines, joined to one communicator.

Whether memory can be shared is tried, not assumed: a machine whose ranks cannot reach each other's memory (containers
without a common ``/dev/shm``) is treated as so many machines of one rank each, with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.background import Background
from ringlet.comm.contract import Array, Communicator, Handle, Op
from ringlet.comm.hierarchy import Hierarchy
from ringlet.comm.memory import KINDS, Segment, attach_segment, create_segment
from ringlet.comm.node import NodeCommunicator, segment_bytes
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.window import Window
from ringlet.comm.wire import Wire
from ringlet.comm.wired import NO_THREADS, WiredCommunicator
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

RANKS_PER_NODE = "RINGLET_RANKS_PER_NODE"
"""Cuts every machine into smaller ones of so many ranks each: for memory domains, and for tests."""


@final
class LayeredCommunicator(Communicator):
    """Ranks of any number of machines; every rank of the wire must call the constructor.

    On one machine all collectives are those of the shared memory; where every rank is alone, those of the wire; else
    those of a :class:`Hierarchy`.
    """

    def __init__(self, wire: Wire, machines: Sequence[int], *, startable: bool = True) -> None:
        """``machines`` has a number for every rank, equal for ranks of one machine."""
        self.name = wire.name
        self.rank = wire.rank
        self.size = wire.size
        self._wire = wire
        self._owner = Owner()
        self._startable = startable and wire.can_duplicate()
        self._closed = False
        self._background: Background | None = None
        flat = WiredCommunicator(wire)
        segment, self._machines = share_memory(flat, machines)
        self._nodes = members(self._machines)
        peers = next(ranks for ranks in self._nodes if self.rank in ranks)
        self._node = self._nodes.index(peers)
        self._local: Communicator = SingleCommunicator()
        if segment is not None:
            self._local = NodeCommunicator(segment, peers.index(self.rank), len(peers))
        self._join(flat, peers)

    def _join(self, flat: WiredCommunicator, peers: list[int]) -> None:
        """Lay the wires between machines, as many as this layout needs."""
        self._cross: Communicator = SingleCommunicator()
        self._whole: Communicator | Hierarchy = self._local
        if len(self._nodes) == 1:
            return
        everybody = range(self.size)
        if len(self._nodes) == self.size:
            spare = self._wire.subset(everybody) if self._startable else None
            self._whole = self._cross = WiredCommunicator(self._wire, spare=spare)
            return
        position = peers.index(self.rank)
        others = [ranks[position] for ranks in self._nodes if len(ranks) > position]
        spare = self._wire.subset(others) if self._startable else None
        self._cross = WiredCommunicator(self._wire.subset(others), spare=spare)
        self._whole = Hierarchy(flat, self._local, self._cross, self._nodes)
        if self._startable:
            second, machines = self._wire.subset(everybody), self._machines
            self._background = Background(lambda: LayeredCommunicator(second, machines, startable=False))

    @property
    def local(self) -> Communicator:
        """The shared memory of this machine."""
        return self._local

    @property
    def cross(self) -> Communicator:
        """The wire to this rank's counterparts."""
        return self._cross

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """Of every machine."""
        return tuple(len(ranks) for ranks in self._nodes)

    @property
    def node(self) -> int:
        """The number of this rank's machine."""
        return self._node

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """Inside machines, then between them."""
        self._check_open("allreduce")
        return self._whole.allreduce(array, op, out=out)

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """Between machines, then inside them."""
        self._check_open("broadcast")
        return self._whole.broadcast(array, root, out=out)

    def allgather(self, array: Array) -> Array:
        """Rows of all ranks."""
        self._check_open("allgather")
        return self._whole.allgather(array)

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """This rank's rows, combined."""
        self._check_open("reduce_scatter")
        return self._whole.reduce_scatter(array, op)

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """Rows for every rank."""
        self._check_open("alltoall")
        return self._whole.alltoall(array, splits)

    def barrier(self) -> None:
        """Of all machines."""
        self._check_open("barrier")
        self._whole.barrier()

    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """In the shared memory of this machine."""
        self._check_open("shared_array")
        return self._local.shared_array(shape, dtype)

    def window(self, num_bytes: int) -> Window:
        """In shared memory if there is one machine, otherwise over the wire."""
        self._check_open("window")
        return self._local.window(num_bytes) if len(self._nodes) == 1 else self._wire.window(num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """The same layers for some ranks; a part of a machine is a machine."""
        self._check_open("group")
        chosen = arrays.check_ranks(ranks, self.size)
        if self.rank not in chosen:
            return None
        machines = [self._machines[rank] for rank in chosen]
        return LayeredCommunicator(self._wire.subset(chosen), machines, startable=self._startable)

    def start(self, collective: str, *arguments: Any, **options: Any) -> Handle:
        """In a thread, over layers of its own."""
        self._check_open(collective)
        if self._background is not None:
            return self._background.submit(collective, arguments, options)
        if isinstance(self._whole, Hierarchy):
            raise CommunicationError(NO_THREADS)
        return self._whole.start(collective, *arguments, **options)

    def abort(self, exit_code: int) -> None:
        """End the job."""
        if not self._owner.is_here:
            self._local.abort(exit_code)
        self._wire.abort(exit_code)

    def close(self) -> None:
        """Finish what was started, let go of shared memory."""
        if self._closed:
            return
        self._closed = True
        if not self._owner.is_here:
            return
        if self._background is not None:
            self._background.close()
        self._cross.close()
        self._local.close()

    def _check_open(self, collective: str) -> None:
        if self._closed:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")
        self._owner.check(collective, self.rank)


def members(machines: Sequence[int]) -> list[list[int]]:
    """The ranks of every machine, machines in the order of their lowest ranks."""
    groups: dict[int, list[int]] = {}
    for rank, machine in enumerate(machines):
        groups.setdefault(machine, []).append(rank)
    return list(groups.values())


def cut_machines(machines: Sequence[int], ranks_per_node: int | None) -> list[int]:
    """Machines of at most ``ranks_per_node`` ranks each, numbered by their lowest ranks; None: as they are."""
    numbers = [0] * len(machines)
    for ranks in members(machines):
        length = ranks_per_node or len(ranks)
        for position, rank in enumerate(ranks):
            numbers[rank] = ranks[position - position % length]
    return numbers


def ranks_per_node_from_environment() -> int | None:
    """The value of ``RINGLET_RANKS_PER_NODE``; None if it is not set."""
    text = os.environ.get(RANKS_PER_NODE, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise CommunicationError(f"{RANKS_PER_NODE}={text!r} makes no sense: expected a whole number of at least 1")
    return int(text)


def share_memory(flat: Communicator, machines: Sequence[int]) -> tuple[Segment | None, list[int]]:
    """A segment for this rank's machine (None if it is alone) and the machines as they really can share memory.

    Every rank of ``flat`` must call. The lowest rank of each machine makes the segment, the others attach.
    """
    ranks = next(group for group in members(machines) if flat.rank in group)
    alone, segment, problem = len(ranks) == 1, None, ""
    for kind in KINDS:
        token = b""
        try:
            if flat.rank == ranks[0] and segment is None and not alone:
                segment = create_segment(segment_bytes(len(ranks)), kind)
                token = segment.token
        except (CommunicationError, OSError) as error:
            problem = str(error)
        offered = flat.allgather_bytes(token)[ranks[0]]
        try:
            if flat.rank != ranks[0] and segment is None and offered:
                segment = attach_segment(offered)
        except CommunicationError as error:
            problem = str(error)
        ready = flat.allgather(np.array([alone or segment is not None], np.uint8))
        if segment is not None:
            segment.seal()
        if not ready[ranks].all():
            segment = None
        if ready.all():
            break
    if problem and segment is None:
        warnings.warn(f"the ranks of this machine do not share memory: {problem}", RuntimeWarning, stacklevel=2)
    return segment, _working_machines(machines, ready)


def _working_machines(machines: Sequence[int], ready: NDArray[np.uint8]) -> list[int]:
    """Machines by their lowest ranks; ranks of a machine where anybody failed are alone."""
    numbers = list(range(len(machines)))
    for ranks in members(machines):
        if ready[ranks].all():
            for rank in ranks:
                numbers[rank] = ranks[0]
    return numbers
