"""Shared memory inside each machine, a wire between machines, joined to one communicator.

Whether memory can be shared is tried, not assumed: a machine whose ranks cannot reach each other's memory (containers
without a common ``/dev/shm``) is treated as machines of one rank each, with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm import arrays
from ringlet.comm.collective import Array, Background, Collective, Result
from ringlet.comm.contract import Communicator, Handle
from ringlet.comm.memory import KINDS, Segment, attach_segment, create_segment
from ringlet.comm.node import NodeCommunicator, segment_bytes
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.window import Window
from ringlet.comm.wire import NO_THREADS, Wire, WiredCommunicator
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

RANKS_PER_NODE = "RINGLET_RANKS_PER_NODE"
"""Cuts every machine into smaller ones of this many ranks each: for memory domains, and for tests."""


@final
class LayeredCommunicator(Communicator):
    """Ranks of any number of machines; every rank of the wire must call the constructor.

    On one machine all collectives are those of the shared memory; where every rank is alone, those of the wire. Else
    they combine inside machines, then between, then hand out: between two machines each value travels once, not once
    per rank, and all ranks of a machine share the work of sending.
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
        self._flat = WiredCommunicator(wire)
        segment, self._numbers = share_memory(self._flat, machines)
        self.machines = members(self._numbers)
        peers = next(ranks for ranks in self.machines if self.rank in ranks)
        self._local: Communicator = SingleCommunicator()
        if segment is not None:
            self._local = NodeCommunicator(segment, peers.index(self.rank), len(peers))
        self._join(peers)

    def _join(self, peers: list[int]) -> None:
        """Lay the wires between machines, as many as this layout needs."""
        self._cross: Communicator = SingleCommunicator()
        self._layer: Communicator | None = self._local
        """What does all collectives, where one layer is enough."""
        if len(self.machines) == 1:
            return
        everyone = range(self.size)
        if len(self.machines) == self.size:
            spare = self._wire.subset(everyone) if self._startable else None
            self._layer = self._cross = WiredCommunicator(self._wire, spare=spare)
            return
        position = peers.index(self.rank)
        others = [ranks[position] for ranks in self.machines if len(ranks) > position]
        spare = self._wire.subset(others) if self._startable else None
        self._cross = WiredCommunicator(self._wire.subset(others), spare=spare)
        self._layer = None
        if self._startable:
            second, machines = self._wire.subset(everyone), self._numbers
            self._background = Background(lambda: LayeredCommunicator(second, machines, startable=False))

    @property
    def local(self) -> Communicator:
        """The shared memory of this machine."""
        return self._local

    @property
    def cross(self) -> Communicator:
        """The wire to this rank's counterparts."""
        return self._cross

    def run(self, collective: Collective[Result], *arguments: Any) -> Result:
        """Inside machines and between them, unless there is one layer only."""
        self._check_open(collective.name)
        if self._layer is not None:
            return self._layer.run(collective, *arguments)
        prepared = collective.checked(self.size, arguments)
        if collective.layered is not None:
            return collective.layered(self, *prepared)
        if collective.wired is not None:
            return collective.wired(self._flat, *prepared)
        assert collective.composed is not None
        return collective.composed(self, *prepared)

    def begin(self, collective: Collective[Any], *arguments: Any) -> Handle:
        """In a thread, over layers of its own."""
        self._check_open(collective.name)
        if self._background is not None:
            return self._background.submit(collective, *arguments)
        if self._layer is None:
            raise CommunicationError(NO_THREADS)
        return self._layer.begin(collective, *arguments)

    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """In the shared memory of this machine."""
        self._check_open("shared_array")
        return self._local.shared_array(shape, dtype)

    def window(self, num_bytes: int) -> Window:
        """In shared memory if there is one machine, otherwise over the wire."""
        self._check_open("window")
        return self._local.window(num_bytes) if len(self.machines) == 1 else self._wire.window(num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """The same layers for some ranks; a part of a machine is a machine."""
        self._check_open("group")
        chosen = arrays.check_ranks(ranks, self.size)
        if self.rank not in chosen:
            return None
        machines = [self._numbers[rank] for rank in chosen]
        return LayeredCommunicator(self._wire.subset(chosen), machines, startable=self._startable)

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
    """Machines by their lowest ranks; ranks of a machine where any rank failed are alone."""
    numbers = list(range(len(machines)))
    for ranks in members(machines):
        if ready[ranks].all():
            for rank in ranks:
                numbers[rank] = ranks[0]
    return numbers
