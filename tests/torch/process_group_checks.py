"""What ranks do in tests of the process group: every collective, messages, groups, errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import ringlet.torch  # noqa: F401  makes the backend known
from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError, RankFailedError, RingletError

WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]


def begin(comm: Communicator, backend: str = "ringlet", **options: Any) -> tuple[int, int]:
    """Make the default group over the ranks that the harness has started."""
    world.use(comm)
    dist.init_process_group(backend, **options)
    return dist.get_rank(), dist.get_world_size()


def everything(comm: Communicator) -> dict[str, Any]:
    """All checks that shared memory passes, in one start of ranks; the last one loses a rank."""
    all_collectives(comm)
    groups(comm)
    return {"limits": limits(comm), "lost": lost_rank(comm)}


def collectives_and_groups(comm: Communicator) -> None:
    """All checks that every wire passes."""
    all_collectives(comm)
    groups(comm)


def all_collectives(comm: Communicator) -> None:
    """Everything that works over any communicator."""
    rank, size = begin(comm)
    assert (rank, size) == (comm.rank, comm.size)
    for check in (
        combine_every_dtype,
        combine_in_every_way,
        combine_every_layout,
        combine_sparse_tensors,
        combine_several_as_one,
        reduce_to_one,
        scatter_combined,
        broadcast_from_each,
        gather_on_all,
        gather_on_one_and_scatter_from_one,
        exchange,
        exchange_objects,
        wait_for_all,
        futures,
        functional_collectives,
        messages,
        messages_by_tag_and_from_anybody,
        batches_of_messages,
        disagreements,
        wrong_arguments,
    ):
        check(rank, size)
    dist.destroy_process_group()


def combine_every_dtype(rank: int, size: int) -> None:
    for dtype in (*WHOLE, *FLOATING, *COMPLEX):
        values = torch.arange(5).to(dtype) + rank
        dist.all_reduce(values)
        assert torch.equal(values, (torch.arange(5) * size + sum(range(size))).to(dtype)), dtype
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, False]
    for number in (0, 1):
        empty = torch.empty(number, 3)
        dist.all_reduce(empty)
    scalar = torch.tensor(1.5)
    dist.all_reduce(scalar)
    assert scalar.item() == 1.5 * size


def combine_in_every_way(rank: int, size: int) -> None:
    ranks = np.arange(size)
    ways: dict[Any, float] = {
        dist.ReduceOp.SUM: (ranks + 1).sum(),
        dist.ReduceOp.AVG: (ranks + 1).mean(),
        dist.ReduceOp.PRODUCT: (ranks + 1).prod(),
        dist.ReduceOp.MIN: 1,
        dist.ReduceOp.MAX: size,
    }
    for how, expected in ways.items():
        values = torch.full((300_000,), rank + 1.0)
        dist.all_reduce(values, op=how)
        assert torch.allclose(values, torch.tensor(float(expected))), how
    bits: dict[Any, Callable[..., Any]] = {
        dist.ReduceOp.BAND: np.bitwise_and,
        dist.ReduceOp.BOR: np.bitwise_or,
        dist.ReduceOp.BXOR: np.bitwise_xor,
    }
    for how, ufunc in bits.items():
        values = torch.arange(300_000) + 7 * rank
        dist.all_reduce(values, op=how)
        expected_bits = ufunc.reduce(np.stack([np.arange(300_000) + 7 * other for other in range(size)]))
        assert np.array_equal(values.numpy(), expected_bits), how
    for dtype in (torch.int64, torch.int16):
        whole = torch.tensor([3 * rank + 1, -3 * rank - 2, 5], dtype=dtype)
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        totals = [sum(3 * other + 1 for other in range(size)), sum(-3 * other - 2 for other in range(size)), 5 * size]
        assert whole.tolist() == [int(total / size) for total in totals]
    part = torch.empty(1, dtype=torch.uint8)
    dist.reduce_scatter_single(part, torch.full((size,), 7 + rank, dtype=torch.uint8), op=dist.ReduceOp.AVG)
    assert part.item() == sum(7 + other for other in range(size)) // size
    scaled = torch.full((4,), rank + 1.0)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(2.5))
    assert scaled.tolist() == [2.5 * sum(range(1, size + 1))] * 4


def combine_every_layout(rank: int, size: int) -> None:
    """Ranks need not have the same layout; a leaf that wants gradients may be combined; a slice leaves the rest."""
    plain = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5) * (rank + 1)
    expected = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5) * sum(range(1, size + 1))
    values = plain.to(memory_format=torch.channels_last) if rank == 0 else plain.clone()
    dist.all_reduce(values)
    assert torch.equal(values, expected)
    assert values.is_contiguous(memory_format=torch.channels_last) == (rank == 0)
    columns = torch.zeros(4, 6)
    dist.all_reduce(columns[:, ::2].add_(rank + 1))
    assert columns.sum() == 12 * sum(range(1, size + 1))
    assert columns[:, 1::2].sum() == 0
    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    version = parameter._version
    dist.broadcast(parameter, size - 1)
    assert parameter.tolist() == [float(size - 1)] * 3
    assert rank == size - 1 or parameter._version > version
    with torch.inference_mode():
        inferred = torch.ones(3)
        dist.all_reduce(inferred)
        assert inferred.tolist() == [float(size)] * 3


def combine_sparse_tensors(rank: int, size: int) -> None:
    for how, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, size)):
        own = torch.sparse_coo_tensor(
            torch.tensor([[rank, size]]), torch.ones(2, 3) * (rank + 1), (size + 1, 3), check_invariants=True
        )
        dist.all_reduce(own, op=how)
        rows = torch.tensor([*range(1, size + 1), sum(range(1, size + 1))], dtype=torch.float32) / divisor
        assert torch.allclose(own.to_dense(), rows[:, None].expand(-1, 3))


def combine_several_as_one(rank: int, size: int) -> None:
    tensors = [torch.full((number,), rank + 1.0) for number in (1, 7, 100)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(torch.equal(tensor, torch.full_like(tensor, sum(range(1, size + 1)))) for tensor in tensors)
    parts = [torch.full((2,), float(rank)), torch.full((3,), 10.0 * rank)]
    wholes = [torch.empty(2 * size), torch.empty(3 * size)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for whole, part in zip(wholes, parts, strict=True):
            dist.all_gather_single(whole, part)
    manager.wait()
    assert wholes[0].view(size, 2)[:, 0].tolist() == [float(other) for other in range(size)]
    assert wholes[1].view(size, 3)[:, 2].tolist() == [10.0 * other for other in range(size)]
    outputs = [torch.empty(2), torch.empty(1)]
    with dist._coalescing_manager():
        dist.reduce_scatter_single(outputs[0], torch.ones(2 * size))
        dist.reduce_scatter_single(outputs[1], torch.arange(size, dtype=torch.float32))
    assert outputs[0].tolist() == [size, size]
    assert outputs[1].tolist() == [rank * size]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        group = dist.group.WORLD
        group.allreduce([tensors[0]])
        group.barrier()
    manager.wait()
    work = manager.works[0]
    assert work.is_completed()
    assert work.is_success()
    assert [tensor.numel() for tensor in work.get_future().wait()] == [1]
    assert tensors[0].item() == size * sum(range(1, size + 1)) == work.result()[0].item()


def reduce_to_one(rank: int, size: int) -> None:
    for root in range(size):
        values = torch.full((3,), rank + 1.0)
        dist.reduce(values, root, op=dist.ReduceOp.SUM)
        expected = sum(range(1, size + 1)) if rank == root else rank + 1
        assert values.tolist() == [float(expected)] * 3


def scatter_combined(rank: int, size: int) -> None:
    output = torch.empty(4)
    dist.reduce_scatter(output, [torch.full((4,), float(10 * rank + part)) for part in range(size)])
    assert output.tolist() == [10.0 * sum(range(size)) + size * rank] * 4
    uneven = torch.empty(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((part + 1,), float(part)) for part in range(size)], op=dist.ReduceOp.MAX)
    assert uneven.tolist() == [float(rank)] * (rank + 1)
    rows = torch.arange(2 * size, dtype=torch.int64).view(size, 2)
    own = torch.empty(1, 2, dtype=torch.int64)
    dist.reduce_scatter_single(own, rows, op=dist.ReduceOp.BOR)
    assert torch.equal(own[0], rows[rank])


def broadcast_from_each(rank: int, size: int) -> None:
    for root in range(size):
        for dtype in (torch.bool, *WHOLE, *FLOATING, *COMPLEX):
            values = torch.full((3, 2), rank + 1).to(dtype)
            dist.broadcast(values, root)
            assert torch.equal(values, torch.full((3, 2), root + 1).to(dtype)), dtype


def gather_on_all(rank: int, size: int) -> None:
    outputs = [torch.empty(2, 3, dtype=torch.bfloat16) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2, 3), float(rank), dtype=torch.bfloat16))
    assert [output.mean().item() for output in outputs] == list(range(size))
    uneven = [torch.empty(other + 1) for other in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert [output.tolist() for output in uneven] == [[float(other)] * (other + 1) for other in range(size)]
    whole = torch.empty(size, 4).t()  # not contiguous
    dist.all_gather_single(whole.t(), torch.full((4,), rank + 0.5))
    assert whole[0].tolist() == [other + 0.5 for other in range(size)]
    lists = [[torch.empty(2), torch.empty(1)] for _ in range(size)]
    dist.group.WORLD.allgather_coalesced(lists, [torch.full((2,), float(rank)), torch.tensor([-1.0 * rank])]).wait()
    assert [row[0].tolist() for row in lists] == [[float(other)] * 2 for other in range(size)]
    assert [row[1].item() for row in lists] == [-1.0 * other for other in range(size)]


def gather_on_one_and_scatter_from_one(rank: int, size: int) -> None:
    for root in range(size):
        gathered = [torch.empty(3, dtype=torch.int32) for _ in range(size)] if rank == root else None
        dist.gather(torch.full((3,), rank, dtype=torch.int32), gathered, dst=root)
        if gathered is not None:
            assert [tensor.tolist() for tensor in gathered] == [[other] * 3 for other in range(size)]
        given = [torch.full((2,), 10.0 * root + other) for other in range(size)] if rank == root else None
        output = torch.empty(2)
        dist.scatter(output, given, src=root)
        assert output.tolist() == [10.0 * root + rank] * 2


def exchange(rank: int, size: int) -> None:
    outputs = [torch.empty(other + 1) for other in range(size)]
    dist.all_to_all(outputs, [torch.full((rank + 1,), 10.0 * rank + other) for other in range(size)])
    assert [output.tolist() for output in outputs] == [[10.0 * other + rank] * (other + 1) for other in range(size)]
    equal = torch.empty(size, 2)
    dist.all_to_all_single(equal, torch.full((size, 2), float(rank)))
    assert equal[:, 0].tolist() == [float(other) for other in range(size)]
    # Rank r sends r + 1 rows to rank 0 and one row to each of the others.
    sent = [rank + 1] + [1] * (size - 1)
    received = [other + 1 for other in range(size)] if rank == 0 else [1] * size
    rows = torch.empty(sum(received), 3)
    dist.all_to_all_single(rows, torch.full((sum(sent), 3), float(rank)), received, sent)
    assert rows[:, 1].tolist() == [float(other) for other in range(size) for _ in range(received[other])]


def exchange_objects(rank: int, size: int) -> None:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "é" * rank})
    assert gathered == [{"rank": other, "text": "é" * other} for other in range(size)]
    told = [f"from {rank}", rank]
    dist.broadcast_object_list(told, src=size - 1)
    assert told == [f"from {size - 1}", size - 1]
    own: list[Any] = [None]
    dist.scatter_object_list(own, [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    assert own == [f"for {rank}"]
    collected: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, collected, dst=0)
    assert collected in (None, list(range(size)))


def wait_for_all(rank: int, size: int) -> None:
    dist.barrier()
    work = dist.barrier(async_op=True)
    assert work.wait()
    work.synchronize()
    work.block_current_stream()
    assert work.result() == []
    assert work.exception() is None


def futures(rank: int, size: int) -> None:
    """Results come through futures before and after they are there, and callbacks may use the group."""
    works = [dist.all_reduce(torch.full((1000,), float(number)), async_op=True) for number in range(8)]
    assert [work.get_future().wait()[0][0].item() for work in works] == [float(size * number) for number in range(8)]
    assert works[3].get_future().value()[0][0].item() == 3.0 * size
    first, outputs = torch.ones(5), [torch.empty(5) for _ in range(size)]

    def gather_too(future: Any) -> Tensor:
        total = future.value()[0]
        gathered = dist.all_gather(outputs, total * (rank + 1), async_op=True).get_future().wait()[0]
        return torch.stack(gathered).sum()

    chained = dist.all_reduce(first, async_op=True).get_future().then(gather_too)
    later = dist.all_reduce(torch.ones(2), async_op=True)
    assert chained.wait().item() == 5 * size * sum(range(1, size + 1))
    assert later.result()[0].tolist() == [size, size]


def functional_collectives(rank: int, size: int) -> None:
    """What DTensor and compiled programs call: names of groups, collectives out of C++."""
    from torch.distributed import _functional_collectives as functional

    group = dist.group.WORLD
    assert functional.all_reduce(torch.ones(3), "sum", group).tolist() == [size] * 3
    gathered = functional.all_gather_single(torch.full((2,), float(rank)), 0, group)
    assert gathered.tolist() == [float(other) for other in range(size) for _ in range(2)]
    assert functional.reduce_scatter_single(torch.ones(size * 2), "avg", 0, group).tolist() == [1.0, 1.0]
    assert functional.broadcast(torch.tensor([float(rank)]), 0, group).item() == 0.0
    swapped = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, group)
    assert swapped.tolist() == [float(other) for other in range(size)]


def messages(rank: int, size: int) -> None:
    """Around a ring, everybody sends before receiving; then to and fro, also to oneself."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64):
        received = torch.empty(3, 4, dtype=dtype)
        sent = dist.isend(torch.full((3, 4), before if dtype is torch.bool else rank).to(dtype), after)
        assert dist.recv(received, before) == before
        assert sent.wait()
        assert torch.equal(received, torch.full((3, 4), (rank - 2) % size if dtype is torch.bool else before).to(dtype))
    large, columns = torch.arange(1_000_000.0), torch.zeros(100, 3)
    if rank == 0:
        for number in range(3):
            dist.send(large * number, 1)
        dist.send(torch.ones(0), 1)
        dist.send(torch.arange(100.0), 1)
    elif rank == 1:
        for number in range(3):
            target = torch.empty(1_000_000)
            dist.recv(target, 0)
            assert torch.equal(target, large * number)
        dist.recv(torch.empty(0), 0)
        dist.recv(columns[:, 1], 0)
        assert columns.sum() == columns[:, 1].sum() == 4950
    own = torch.empty(2)
    work = dist.irecv(own, rank)
    assert dist.isend(torch.tensor([1.0, 2.0]), rank).wait()
    assert work.wait()
    assert own.tolist() == [1.0, 2.0]


def messages_by_tag_and_from_anybody(rank: int, size: int) -> None:
    if rank == 0:
        sources, values = [], []
        for _ in range(size - 1):
            target = torch.empty(1)
            sources.append(dist.recv(target, tag=5))
            values.append(target.item())
        assert sorted(sources) == list(range(1, size))
        assert values == [100.0 + source for source in sources]
        for source in range(1, size):
            by_tag = {tag: torch.empty(1) for tag in (9, 8, 7)}
            for tag, target in by_tag.items():
                dist.recv(target, source, tag=tag)
            assert {tag: target.item() for tag, target in by_tag.items()} == {9: 9.0, 8: 8.0, 7: 7.0}
    else:
        dist.send(torch.tensor([100.0 + rank]), 0, tag=5)
        works = [dist.isend(torch.tensor([float(tag)]), 0, tag=tag) for tag in (7, 8, 9)]
        assert all(work.wait() for work in works)
    dist.barrier()


def batches_of_messages(rank: int, size: int) -> None:
    outgoing = [torch.full((2,), 10.0 * rank + other) for other in range(size)]
    incoming = [torch.empty(2) for _ in range(size)]
    others = [other for other in range(size) if other != rank]
    operations = [dist.P2POp(dist.irecv, incoming[other], other) for other in others]
    operations += [dist.P2POp(dist.isend, outgoing[other], other) for other in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(incoming[other].tolist() == [10.0 * other + rank] * 2 for other in others)


def disagreements(rank: int, size: int) -> None:
    """Ranks that do not call the same get an error on all of them, and the next call works."""
    if dist.group.WORLD._communicator.name != "node":
        return  # wires between machines compare less
    with pytest.raises(CommunicationError, match=r"ranks disagree: rank 0 called allreduce\(float32, shape \(3,\)"):
        dist.all_reduce(torch.ones(3 if rank == 0 else 4))
    work = dist.all_reduce(torch.ones(2, dtype=torch.float64 if rank == 0 else torch.float32), async_op=True)
    with pytest.raises(RuntimeError, match="CommunicationError: ranks disagree"):
        work.get_future().wait()
    assert isinstance(work.exception(), CommunicationError)
    assert not work.is_success()
    assert work.is_completed()
    with pytest.raises(CommunicationError, match="average of dtype bool would not be whole"):
        dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG)
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        with pytest.raises(CommunicationError, match="has sent 12 bytes of the same dtype, but the tensor has 8"):
            dist.recv(torch.empty(2), 0)
        with pytest.raises(CommunicationError, match="12 bytes of another dtype"):
            dist.recv(torch.empty(3, dtype=torch.int32), 0)
    after = torch.ones(2)
    dist.all_reduce(after)
    assert after.tolist() == [size, size]


def wrong_arguments(rank: int, size: int) -> None:
    """What a rank can see by itself is refused at once."""
    group = dist.group.WORLD
    for call, message in (
        (lambda: group.allgather([[torch.empty(1)] * (size + 1)], [torch.ones(1)]), "all_gather was given"),
        (lambda: group.allgather([[torch.empty(2)] * size], [torch.ones(1)]), "has 2 elements: expected 1"),
        (lambda: group._allgather_base(torch.empty(1), torch.ones(1)), f"has 1 elements: expected {size}"),
        (lambda: group._reduce_scatter_base(torch.empty(2), torch.ones(size)), f"expected {2 * size}"),
        (lambda: group.alltoall_base(torch.empty(size), torch.ones(size + 1), [], []), "split sizes"),
        (lambda: group.send([torch.ones(1)], size, 0), f"cannot send to rank {size}"),
        (lambda: group.recv([torch.ones(1)], -1, 0), "cannot receive from rank -1"),
        (lambda: group.allreduce([torch.eye(2).to_sparse_csr()]), "layout torch.sparse_csr"),
        (lambda: group.allreduce([torch.ones(1, dtype=torch.float8_e5m2)]), "float8_e5m2"),
    ):
        with pytest.raises(RingletError, match=message):
            call()
    with pytest.raises(CommunicationError, match=r"by ReduceOp.SUM and AVG only"):
        dist.all_reduce(torch.ones(2).to_sparse(), op=dist.ReduceOp.MAX)
    with pytest.raises(CommunicationError, match="cannot be combined bit by bit"):
        dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)


# -- groups -----------------------------------------------------------------------------------------------------------
def groups(comm: Communicator) -> None:
    """Groups of some ranks and of all, made, used at the same time, destroyed, and the whole made again.

    Gloo's own group is made once: it leaves keys in the store, which the next one of its name would take for new ones.
    """
    for backend, others in (("ringlet", ["gloo"]), ("cpu:ringlet", [])):
        rank, size = begin(comm, backend, timeout=timedelta(minutes=5), init_method="env://", rank=comm.rank)
        assert dist.get_backend() == backend
        assert dist.is_backend_available("ringlet")
        assert repr(dist.group.WORLD) == f"<ringlet process group 0: rank {rank} of {size}>"
        assert dist.group.WORLD.name() == "ringlet"
        last = dist.new_group([size - 2, size - 1])
        alone = dist.new_group([rank], use_local_synchronization=True)
        everybody = dist.new_group(timeout=timedelta(minutes=1))
        device = dist.new_group(backend="cpu:ringlet")
        together = [everybody, None, device, *(dist.new_group(backend=other) for other in others)]
        works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for group in together]
        if rank >= size - 2:
            values = torch.tensor([float(rank)])
            dist.all_reduce(values, group=last)
            assert values.item() == 2 * size - 3
            dist.broadcast(values.fill_(rank), src=size - 1, group=last)
            assert values.item() == size - 1
            exchange = torch.empty(1)
            other = 2 * size - 3 - rank
            sent = dist.isend(values.fill_(rank), other, group=last)
            assert dist.recv(exchange, other, group=last) == other
            sent.wait()
            assert exchange.item() == other
        single = torch.ones(2)
        dist.all_reduce(single, group=alone)
        assert single.tolist() == [1.0, 1.0]
        assert all(work.get_future().wait()[0][0].item() == size for work in works)
        dist.destroy_process_group(everybody)
        with pytest.raises(CommunicationError, match="allreduce was called on a process group that has been destroyed"):
            everybody.allreduce([torch.ones(1)])
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()


def limits(comm: Communicator) -> list[str]:
    """A collective that one rank does not call fails after the time-out, in every form; so does all that follows."""
    rank, _ = begin(comm, timeout=timedelta(minutes=5))
    group = dist.new_group()
    group.set_timeout(timedelta(seconds=1))
    messages = []
    if rank == 0:
        calls: list[Callable[[], Any]] = [
            lambda: dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().wait(),
            lambda: dist.barrier(group=group),
            lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(timedelta(milliseconds=50)),
            lambda: dist.recv(torch.ones(1), 1, group=group),
        ]
        for call in calls:
            with pytest.raises(Exception, match="was not done within") as caught:
                call()
            messages.append(f"{type(caught.value).__name__}: {caught.value}")
    comm.barrier()
    if rank != 0:
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    dist.destroy_process_group()
    return messages


def lost_rank(comm: Communicator) -> str:
    """The others learn that a rank has gone, also those that wait for its message."""
    rank, size = begin(comm)
    if rank == size - 1:
        dist.destroy_process_group()
        return "gone"
    with pytest.raises(RingletError) as caught:
        dist.all_reduce(torch.ones(3))
    dist.group.WORLD.abort()
    with pytest.raises(CommunicationError, match="destroyed"):
        dist.all_reduce(torch.ones(3))
    assert isinstance(caught.value, CommunicationError | RankFailedError)
    return str(caught.value)
