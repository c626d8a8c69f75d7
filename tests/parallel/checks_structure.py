"""Checks of machines, shared arrays, groups, started collectives, disagreement between ranks, and closing."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checks_common import expect_error, is_one_machine

from ringlet.comm.contract import Communicator, Op
from ringlet.errors import CommunicationError


def machines_are_as_expected(comm: Communicator) -> None:
    """One machine, unless the job was told to cut it."""
    per_node = int(os.environ.get("RINGLET_RANKS_PER_NODE") or comm.size)
    nodes = [list(range(start, min(start + per_node, comm.size))) for start in range(0, comm.size, per_node)]
    assert comm.local_sizes == tuple(len(ranks) for ranks in nodes)
    assert comm.node == comm.rank // per_node
    assert (comm.local_rank, comm.local_size) == (comm.rank % per_node, len(nodes[comm.node]))
    assert comm.local.allgather(np.array([comm.rank])).tolist() == nodes[comm.node]
    peers = [ranks[comm.local_rank] for ranks in nodes if len(ranks) > comm.local_rank]
    assert comm.cross.allgather(np.array([comm.rank])).tolist() == peers
    assert comm.cross.rank == peers.index(comm.rank)


def parts_are_communicators_too(comm: Communicator) -> None:
    for part in (comm.local, comm.cross):
        ranks = part.allgather(np.array([comm.rank]))
        assert part.allreduce(np.array([comm.rank])).tolist() == [ranks.sum()]
        assert part.start("allreduce", np.array([comm.rank]), Op.MAX).wait().tolist() == [ranks.max()]
        assert part.broadcast(np.array([comm.rank]), part.size - 1).tolist() == [ranks[-1]]
        part.barrier()


def shared_arrays_are_shared(comm: Communicator) -> None:
    first = comm.shared_array((comm.local_size, 1000), np.float32)
    second = comm.shared_array(7, "int64")
    assert (first.shape, first.dtype, second.shape, second.dtype) == ((comm.local_size, 1000), "float32", (7,), "int64")
    for array in (first, second):
        assert array.ctypes.data % 64 == 0
        assert not array.any()
    comm.barrier()
    first[comm.local_rank] = comm.rank + 1
    comm.barrier()
    wanted = comm.local.allgather(np.array([comm.rank + 1]))
    np.testing.assert_array_equal(first, np.repeat(wanted[:, None], 1000, axis=1))
    assert not second.any()
    comm.barrier()


def windows_serve_one_rank_at_a_time(comm: Communicator) -> None:
    """Every rank counts up in turns of its own; nothing gets lost, and small looks see what large ones wrote."""
    if comm.name == "torch" and len(comm.local_sizes) > 1:
        expect_error(lambda: comm.window(8), "needs MPI")
        return
    window, num_turns = comm.window(8 * 1000), 50
    with window.locked() as memory:
        numbers = memory.view(np.int64)
        assert (numbers.size, window.num_bytes) == (1000, 8000)
        assert (numbers == numbers[0]).all()
    comm.barrier()
    for _ in range(num_turns):
        with window.locked() as memory:
            numbers = memory.view(np.int64)
            assert (numbers == numbers[0]).all()
            numbers += 1
    comm.barrier()
    with window.locked(8) as memory:
        assert memory.view(np.int64).tolist() == [num_turns * comm.size]
    comm.barrier()
    with window.locked(16) as memory:
        memory.view(np.int64)[1] += 10**9
    comm.barrier()
    with window.locked() as memory:
        found = memory.view(np.int64).tolist()
        assert found[:3] == [num_turns * comm.size, num_turns * comm.size + comm.size * 10**9, num_turns * comm.size]
    comm.barrier()


def shared_arrays_serve_neighbours(comm: Communicator) -> None:
    """Every rank in turn writes, the others read after the next collective."""
    array = comm.shared_array(5000, np.int32)
    for turn in range(3 * max(comm.local_sizes)):
        if comm.local_rank == turn % comm.local_size:
            array[:] = turn + 1
        comm.local.barrier()
        assert (array == turn + 1).all()
        comm.allreduce(np.zeros(1))
    comm.barrier()


def shared_arrays_of_any_shape(comm: Communicator) -> None:
    for shape, dtype in ((0, "f4"), ((3, 0), "f8"), ((), "i2"), ((2, 3, 4), "bool"), (1, "c16")):
        array = comm.shared_array(shape, dtype)
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert array.dtype == np.dtype(dtype)
        assert not array.any()
    expect_error(lambda: comm.shared_array(3, object), "object")


def shared_arrays_return_their_memory(comm: Communicator) -> None:
    """12 arrays of 16 MB, one after the other, every page touched: 192 MB if what was let go of were not returned."""
    before = resident_bytes()
    for turn in range(12):
        array = comm.shared_array((16 << 20) // 8, np.float64)
        if comm.local_rank == 0:
            array[::512] = turn
        comm.local.barrier()
        assert (array[::512] == turn).all()
        comm.local.barrier()
        del array
        gc.collect()
    assert resident_bytes() - before < 64 << 20


def resident_bytes() -> int:
    """Memory that this process holds now, shared memory included."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs /proc/self/status to see how much memory a process holds")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def groups_have_their_own_ranks(comm: Communicator) -> None:
    even = [rank for rank in range(comm.size) if rank % 2 == 0]
    odd = [rank for rank in range(comm.size) if rank % 2]
    for ranks in filter(None, (even, odd)):
        group = comm.group(ranks)
        assert (group is not None) == (comm.rank in ranks)
        if group is not None:
            assert (group.rank, group.size) == (ranks.index(comm.rank), len(ranks))
            assert group.allreduce(np.array([comm.rank, 1])).tolist() == [sum(ranks), len(ranks)]
            assert group.allgather(np.array([comm.rank])).tolist() == ranks
            group.close()
    comm.barrier()


def groups_keep_the_given_order(comm: Communicator) -> None:
    ranks = list(range(comm.size))[::-1]
    ranks = ranks[1:] + ranks[:1]
    group = comm.group(ranks)
    assert group is not None
    assert group.rank == ranks.index(comm.rank)
    assert group.allgather(np.full(group.rank + 1, comm.rank)).tolist() == [
        rank for position, rank in enumerate(ranks) for _ in range(position + 1)
    ]
    assert group.broadcast(np.array([comm.rank]), 0).tolist() == [ranks[0]]
    result, _ = group.alltoall(np.arange(comm.size) + 10 * comm.rank)
    assert result.tolist() == [10 * rank + group.rank for rank in ranks]
    assert group.reduce_scatter(np.arange(comm.size)).tolist() == [group.rank * comm.size]
    group.close()


def groups_of_groups(comm: Communicator) -> None:
    outer = comm.group(range(comm.size))
    assert outer is not None
    inner = outer.group([outer.size - 1])
    assert (inner is not None) == (comm.rank == comm.size - 1)
    if inner is not None:
        assert inner.size == 1
        assert inner.allreduce(np.array([5.0])).tolist() == [5.0]
    pair = outer.group([0, outer.size - 1] if outer.size > 1 else [0])
    if pair is not None:
        assert pair.allreduce(np.array([1])).tolist() == [pair.size]
        shared = pair.shared_array(pair.local_size, np.int64)
        shared[pair.local_rank] = 1
        pair.barrier()
        assert shared.all()
        pair.barrier()
    comm.barrier()


def groups_do_not_disturb_each_other(comm: Communicator) -> None:
    """Collectives of two groups and of the whole, mixed; groups whose ranks overlap."""
    left, right = comm.group(range((comm.size + 1) // 2)), comm.group(range(comm.size // 2, comm.size))
    for turn in range(10):
        assert comm.allreduce(np.array([turn])).tolist() == [turn * comm.size]
        if left is not None:
            assert left.allreduce(np.array([turn + 1])).tolist() == [(turn + 1) * left.size]
        if right is not None:
            assert right.allreduce(np.array([turn + 2.0])).tolist() == [(turn + 2) * right.size]
    comm.barrier()


def many_groups(comm: Communicator) -> None:
    for turn in range(10):
        group = comm.group(range(comm.size))
        assert group is not None
        assert group.allreduce(np.array([turn])).tolist() == [turn * comm.size]
        group.close()


def groups_refuse_what_is_no_group(comm: Communicator) -> None:
    for ranks in ([], [0, 0], [comm.size], [-1]):
        expect_error(lambda ranks=ranks: comm.group(ranks), "group")


def started_collectives_give_results(comm: Communicator) -> None:
    size = comm.size
    handles = [
        comm.start("allreduce", np.full(3, comm.rank), Op.MAX),
        comm.start("broadcast", np.array([comm.rank]), size - 1),
        comm.start("allgather", np.full(comm.rank, comm.rank)),
        comm.start("reduce_scatter", np.arange(size)),
        comm.start("alltoall", np.arange(size) + 10 * comm.rank),
        comm.start("barrier"),
    ]
    results = [handle.wait() for handle in handles]
    assert results[0].tolist() == [size - 1] * 3
    assert results[1].tolist() == [size - 1]
    assert results[2].tolist() == [rank for rank in range(size) for _ in range(rank)]
    assert results[3].tolist() == [comm.rank * size]
    assert results[4][0].tolist() == [10 * rank + comm.rank for rank in range(size)]
    assert results[5] is None
    assert all(handle.done() for handle in handles)
    assert handles[0].wait() is results[0]


def started_collectives_write_into_out(comm: Communicator) -> None:
    arrays = [np.full(1000 + turn, comm.rank + turn, np.float32) for turn in range(30)]
    handles = [comm.start("allreduce", array, Op.SUM, out=array) for array in arrays]
    for turn, (handle, array) in enumerate(zip(handles, arrays, strict=True)):
        assert handle.wait() is array
        assert (array == sum(range(comm.size)) + turn * comm.size).all()


def started_and_called_collectives_may_be_out_of_step(comm: Communicator) -> None:
    """Half of the ranks start before they call, the others call before they start."""
    for turn in range(10):
        array = np.full(500, comm.rank + turn)
        handle = comm.start("allreduce", array) if comm.rank % 2 else None
        called = comm.allreduce(np.array([turn + 0.5]))
        comm.barrier()
        handle = handle or comm.start("allreduce", array)
        gathered = comm.allgather(np.array([comm.rank]))
        assert called.tolist() == [(turn + 0.5) * comm.size]
        assert gathered.tolist() == list(range(comm.size))
        assert (handle.wait() == sum(range(comm.size)) + turn * comm.size).all()


def the_first_start_may_be_out_of_step(comm: Communicator) -> None:
    """On a new communicator, where starting needs things made that calling does not."""
    group = comm.group(range(comm.size))
    assert group is not None
    handle = group.start("allreduce", np.ones(3)) if comm.rank % 2 else None
    group.barrier()
    handle = handle or group.start("allreduce", np.ones(3))
    assert group.allreduce(np.ones(2)).tolist() == [comm.size] * 2
    assert handle.wait().tolist() == [comm.size] * 3
    group.close()


def started_collectives_of_large_arrays(comm: Communicator) -> None:
    array = np.arange(1_500_007, dtype=np.float32) % 101
    handles = [comm.start("allreduce", array + turn) for turn in range(3)]
    called = comm.allreduce(array)
    np.testing.assert_array_equal(called, array * comm.size)
    for turn, handle in enumerate(handles):
        np.testing.assert_array_equal(handle.wait(), (array + turn) * comm.size)


def started_collectives_raise_when_waited_for(comm: Communicator) -> None:
    handle = comm.start("allreduce", np.ones(3, np.int32), Op.AVERAGE)
    expect_error(handle.wait, "average")
    expect_error(handle.wait, "average")
    assert handle.done()
    expect_error(lambda: comm.start("group", [0]), "group")
    expect_error(lambda: comm.start("nonsense"), "nonsense")
    assert comm.start("allreduce", np.ones(1)).wait().tolist() == [comm.size]


def disagreement(call: Callable[[Communicator], object]) -> Callable[[Communicator], None]:
    """On shared memory every rank notices that ranks do not do the same, and none hangs."""

    def check(comm: Communicator) -> None:
        if comm.size == 1 or not is_one_machine(comm):
            pytest.skip("noticed by shared memory: needs several ranks, all on one machine")
        group = comm.group(range(comm.size))
        assert group is not None
        try:
            call(group)
        except CommunicationError as error:
            message = str(error)
        else:
            raise AssertionError("no error")
        assert "rank" in message
        assert comm.allreduce(np.ones(1)).tolist() == [comm.size]

    return check


def disagreement_on_the_wire(comm: Communicator) -> None:
    """Between machines it is noticed where rows are exchanged."""
    if comm.size == 1:
        pytest.skip("needs several ranks to disagree")
    last = comm.rank == comm.size - 1
    expect_error(lambda: comm.allgather(np.ones(3, np.int32 if last else np.float32)), "int32")
    expect_error(lambda: comm.alltoall(np.ones((comm.size, 2 if last else 3))), "(")
    assert comm.allreduce(np.ones(1)).tolist() == [comm.size]


def closed_communicators_refuse(comm: Communicator) -> None:
    group = comm.group(range(comm.size))
    assert group is not None
    group.start("allreduce", np.ones(1)).wait()
    comm.barrier()
    group.close()
    group.close()
    expect_error(lambda: group.allreduce(np.ones(1)), "close")
    expect_error(group.barrier, "close")
    expect_error(lambda: group.start("barrier"), "close")
    assert comm.allreduce(np.ones(1)).tolist() == [comm.size]


def arrays_survive_their_communicator(comm: Communicator) -> None:
    group = comm.group(range(comm.size))
    assert group is not None
    array = group.shared_array((group.local_size, 3), np.int64)
    group.barrier()
    group.close()
    del group
    array[comm.local_rank] = 7
    comm.barrier()
    assert (array == 7).all()


def _rank_last(group: Communicator) -> bool:
    return group.rank == group.size - 1


DISAGREEMENTS: dict[str, Callable[[Communicator], object]] = {
    "dtypes": lambda group: group.allreduce(np.ones(4, np.float64 if _rank_last(group) else np.float32)),
    "lengths": lambda group: group.allreduce(np.ones(5 if _rank_last(group) else 4)),
    "operations": lambda group: group.allreduce(np.ones(4), Op.MAX if _rank_last(group) else Op.MIN),
    "collectives": lambda group: group.barrier() if _rank_last(group) else group.allreduce(np.ones(4)),
    "roots": lambda group: group.broadcast(np.ones(4), group.rank if _rank_last(group) else 0),
    "rows": lambda group: group.allgather(np.ones((4, 3 if _rank_last(group) else 2))),
    "large_lengths": lambda group: group.allreduce(np.ones(2_000_003 if _rank_last(group) else 2_000_000)),
}

CHECKS: dict[str, Callable[[Communicator], None]] = {
    check.__name__: check
    for check in (
        machines_are_as_expected,
        parts_are_communicators_too,
        shared_arrays_are_shared,
        windows_serve_one_rank_at_a_time,
        shared_arrays_serve_neighbours,
        shared_arrays_of_any_shape,
        shared_arrays_return_their_memory,
        groups_have_their_own_ranks,
        groups_keep_the_given_order,
        groups_of_groups,
        groups_do_not_disturb_each_other,
        many_groups,
        groups_refuse_what_is_no_group,
        started_collectives_give_results,
        started_collectives_write_into_out,
        started_and_called_collectives_may_be_out_of_step,
        the_first_start_may_be_out_of_step,
        started_collectives_of_large_arrays,
        started_collectives_raise_when_waited_for,
        disagreement_on_the_wire,
        closed_communicators_refuse,
        arrays_survive_their_communicator,
    )
} | {f"disagreement_about_{name}": disagreement(call) for name, call in DISAGREEMENTS.items()}
