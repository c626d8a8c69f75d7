"""Two collectives as another package would add them: one composed of others, one with a function for each kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from checks_common import expect_error, is_one_machine

from ringlet.bench.contenders import Ringlet
from ringlet.bench.measurement import known_collectives, measure
from ringlet.comm import arrays
from ringlet.comm.channel import Channel
from ringlet.comm.collective import Array, Collective, register
from ringlet.comm.contract import Communicator
from ringlet.comm.node import Call, NodeCommunicator
from ringlet.comm.wire import WiredCommunicator


def _scan(comm: Communicator, array: Array) -> Array:
    """The sum of the arrays of all ranks up to this one."""
    total: Array = comm.allgather(array[np.newaxis])[: comm.rank + 1].sum(axis=0)
    return total


SCAN = register(
    Collective("scan", bind=lambda array: (array,), composed=_scan, example=lambda values, _size: (values,))
)


def _bind_gather(array: Array, root: int = 0) -> tuple[Any, ...]:
    return array, root


def _gather_facts(array: Array, root: int) -> tuple[Any, ...]:
    return array.dtype, array.shape, f"root {root}"


def _prepare_gather(size: int, array: Array, root: int) -> tuple[Any, ...]:
    arrays.check_root(root, size)
    return arrays.contiguous(array), root


def _rows(comm: Communicator, array: Array, root: int) -> Array:
    return np.empty((comm.size if comm.rank == root else 0, *array.shape), array.dtype)


def _gather_on_node(comm: NodeCommunicator, channel: Channel, call: Call, array: Array, root: int) -> Array | None:
    result = _rows(comm, array, root)
    sizes = [array.nbytes if receiver == root else 0 for _ in range(comm.size) for receiver in range(comm.size)]
    stranger = channel.alltoall(call.signature, array, result, sizes)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    return result if comm.rank == root else None


def _gather_over_wire(comm: WiredCommunicator, array: Array, root: int) -> Array | None:
    result = _rows(comm, array, root)
    sent = [array.nbytes if receiver == root else 0 for receiver in range(comm.size)]
    received = [array.nbytes if comm.rank == root else 0] * comm.size
    comm.wire.alltoall(arrays.as_bytes(array), sent, arrays.as_bytes(result), received)
    return result if comm.rank == root else None


GATHER = register(
    Collective[Array | None](
        "gather",
        bind=_bind_gather,
        facts=_gather_facts,
        prepare=_prepare_gather,
        single=lambda _comm, array, _root: array[np.newaxis].copy(),
        node=_gather_on_node,
        wired=_gather_over_wire,
    )
)


def check(comm: Communicator) -> bool:
    """Both, called, started, refused and timed."""
    mine = np.arange(5.0) + comm.rank
    wanted = sum(np.arange(5.0) + rank for rank in range(comm.rank + 1))
    np.testing.assert_array_equal(comm.call("scan", mine), wanted)
    np.testing.assert_array_equal(comm.start("scan", mine).wait(), wanted)
    for root in range(comm.size):
        for rows in (comm.call("gather", mine, root), comm.start("gather", mine, root=root).wait()):
            assert (rows is None) == (comm.rank != root)
            if rows is not None:
                np.testing.assert_array_equal(rows, [np.arange(5.0) + rank for rank in range(comm.size)])
    expect_error(lambda: comm.call("gather", mine, comm.size), f"root {comm.size} is not a rank")
    if is_one_machine(comm) and comm.size > 1:
        words = expect_error(lambda: comm.call("gather", mine, comm.rank), "ranks disagree: rank 0 called gather(")
        assert "shape (5,), root 1" in words
    assert ("scan" in known_collectives(), "gather" in known_collectives()) == (True, False)
    timed = measure(comm, [Ringlet(comm)], "scan", 64, 1)
    assert [(entry.contender, entry.collective, entry.seconds > 0) for entry in timed] == [("ringlet", "scan", True)]
    return True
