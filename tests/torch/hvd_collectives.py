"""Every collective in all its forms, against sums and joins that each rank computes by itself."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
from hvd_common import FLOATING, WHOLE, expect_equal, expect_error, of_all, of_rank, total

import ringlet.torch as hvd
from ringlet.comm import world
from ringlet.comm.contract import Communicator


def check_who_everybody_is() -> None:
    assert hvd.is_initialized()
    hvd.init()  # harmless
    assert 0 <= hvd.rank() < hvd.size()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert 0 <= hvd.cross_rank() < hvd.cross_size()
    ranks = hvd.allgather(torch.tensor([hvd.rank()]))
    assert ranks.tolist() == list(range(hvd.size()))
    assert hvd.is_homogeneous() is True
    assert hvd.mpi_threads_supported() is True
    assert not any((hvd.nccl_built(), hvd.ccl_built(), hvd.ddl_built(), hvd.cuda_built(), hvd.rocm_built()))
    assert hvd.gloo_built()
    assert isinstance(hvd.mpi_built(), bool)
    assert [hvd.mpi_enabled(), hvd.gloo_enabled()].count(True) <= 1
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.rank() == hvd.rank()


def check_allreduce_of_every_dtype_and_operation() -> None:
    for dtype in (*WHOLE, *FLOATING):
        for dimensions in ((), (5,), (3, 4), (2, 0, 3), (2, 3, 2)):
            everything = of_all(dimensions, dtype)
            tensor = of_rank(hvd.rank(), dimensions, dtype)
            stacked = torch.stack([value.double() for value in everything])
            expect_equal(hvd.allreduce(tensor, op=hvd.Sum), stacked.sum(0))
            expect_equal(hvd.allreduce(tensor, op=hvd.Min), stacked.amin(0))
            expect_equal(hvd.allreduce(tensor, op=hvd.Max), stacked.amax(0))
            expect_equal(hvd.allreduce(tensor, op=hvd.Product), stacked.prod(0))
            mean = stacked.sum(0) / hvd.size()
            result = hvd.allreduce(tensor)
            if dtype in WHOLE:
                expect_equal(result, mean.trunc())
            else:
                assert torch.allclose(result.double(), mean, rtol=1e-2 if dtype is torch.bfloat16 else 2e-3)
            assert torch.equal(tensor, of_rank(hvd.rank(), dimensions, dtype))  # the input stays as it is
            assert result.dtype is dtype
    both = hvd.allreduce(of_rank(hvd.rank(), (9,), torch.bool), op=hvd.Sum)
    assert torch.equal(both, total(of_all((9,), torch.bool)) > 0)


def check_complex_numbers() -> None:
    everything = [torch.complex(of_rank(r, seed=1), of_rank(r, seed=2)) for r in range(hvd.size())]
    mine = everything[hvd.rank()]
    assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), torch.stack(everything).sum(0))
    assert torch.equal(hvd.allreduce(mine.conj(), op=hvd.Sum), torch.stack(everything).sum(0).conj())


def check_allreduce_forms_agree() -> None:
    expected = total(of_all())
    tensor = of_rank(hvd.rank())
    expect_equal(hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum, name="forms")), expected)
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
    result = hvd.synchronize(handle)
    assert result is tensor
    assert hvd.synchronize(handle) is tensor  # again
    expect_equal(tensor, expected)
    tensor = of_rank(hvd.rank())
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    expect_equal(tensor, expected)
    with pytest.warns(DeprecationWarning, match="average"):
        expect_equal(hvd.allreduce(of_rank(hvd.rank()), average=False), expected)
    expect_error(lambda: hvd.allreduce(tensor, average=True, op=hvd.Sum), "both op=")
    expect_error(lambda: hvd.allreduce(tensor, op="sum"), "op='sum' is no reduction")


def check_poll_turns_true() -> None:
    handle = hvd.allreduce_async(of_rank(hvd.rank()), op=hvd.Sum)
    waiting = threading.Event()
    while not hvd.poll(handle):
        waiting.wait(0.001)
    expect_equal(hvd.synchronize(handle), total(of_all()))
    assert hvd.poll(handle)
    expect_error(lambda: hvd.poll(3), "3 is no handle")


def check_scale_factors() -> None:
    expected = 0.5 * total([2.0 * tensor for tensor in of_all()])
    result = hvd.allreduce(of_rank(hvd.rank()), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    assert torch.allclose(result.double(), expected)
    tensors = [of_rank(hvd.rank(), seed=seed) for seed in range(2)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
    for seed, result in enumerate(results):
        assert torch.allclose(result.double(), 6.0 * total(of_all(seed=seed)))


def check_grouped_allreduce_of_mixed_dtypes() -> None:
    forms = [((3, 4), torch.float32), ((5,), torch.float64), ((2, 2), torch.bfloat16), ((7,), torch.int64)]

    def tensors(rank: int) -> list[torch.Tensor]:
        return [of_rank(rank, shape, dtype) for shape, dtype in forms]

    expected = [total(group) for group in zip(*[tensors(rank) for rank in range(hvd.size())], strict=True)]
    mine = tensors(hvd.rank())
    for result, value in zip(hvd.grouped_allreduce(mine, op=hvd.Sum), expected, strict=True):
        expect_equal(result, value)
    handle = hvd.grouped_allreduce_async(mine, op=hvd.Sum, name="group")
    for result, value in zip(hvd.synchronize(handle), expected, strict=True):
        expect_equal(result, value)
    handle = hvd.grouped_allreduce_async_(mine, op=hvd.Sum)
    assert all(result is tensor for result, tensor in zip(hvd.synchronize(handle), mine, strict=True))
    again = tensors(hvd.rank())
    hvd.grouped_allreduce_(again, op=hvd.Sum)
    for result, value in zip([*mine, *again], expected * 2, strict=True):
        expect_equal(result, value)
    expect_error(lambda: hvd.grouped_allreduce([]), "a list of at least one tensor")


def check_any_layout() -> None:
    shape = (2, 3, 4, 5)
    expected = total(of_all(shape))
    values = of_rank(hvd.rank(), shape)
    views = [
        values.to(memory_format=torch.channels_last),
        values.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
        torch.zeros(2, 3, 4, 10)[..., ::2].copy_(values),
        values if hvd.rank() else values.to(memory_format=torch.channels_last),  # ranks need not agree
    ]
    for view in views:
        result = hvd.allreduce(view, op=hvd.Sum)
        expect_equal(result, expected)
        if view.is_contiguous(memory_format=torch.channels_last):
            assert result.stride() == view.stride()
        copy = view.clone()
        assert hvd.allreduce_(copy, op=hvd.Sum) is copy
        expect_equal(copy, expected)
        expect_equal(hvd.broadcast(view, 0), of_rank(0, shape))
        root = view.clone()
        expect_equal(hvd.broadcast_(root, hvd.size() - 1), of_rank(hvd.size() - 1, shape))
        expect_equal(hvd.allgather(view), torch.cat(of_all(shape)))


def check_compression() -> None:
    tensor = of_rank(hvd.rank())
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(tensor, op=hvd.Sum, compression=compression)
        assert result.dtype is torch.float32
        expect_equal(result, total(of_all()))
        whole = hvd.allreduce(tensor.long(), op=hvd.Sum, compression=compression)
        expect_equal(whole, total(of_all()))
        for part in hvd.grouped_allreduce([tensor.double()], op=hvd.Sum, compression=compression):
            assert part.dtype is torch.float64
            expect_equal(part, total(of_all()))


def check_bfloat16_is_accumulated_in_float32() -> None:
    """256 + 1 is 256 in bfloat16: with one rounding in the end no addend is lost."""
    tensor = torch.full((64,), 256.0 if hvd.rank() == 0 else 1.0, dtype=torch.bfloat16)
    result = hvd.allreduce(tensor, op=hvd.Sum)
    expected = torch.full((64,), 256.0 + hvd.size() - 1).bfloat16()
    assert torch.equal(result, expected)


def check_allgather_of_uneven_rows() -> None:
    for dtype in (*WHOLE, *FLOATING, torch.bool):
        parts = [of_rank(rank, (rank + 1, 3), dtype) for rank in range(hvd.size())]
        expect_equal(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))
        expect_equal(hvd.synchronize(hvd.allgather_async(parts[hvd.rank()])), torch.cat(parts))
    empty = [of_rank(rank, (0 if rank == 0 else 2,)) for rank in range(hvd.size())]
    expect_equal(hvd.allgather(empty[hvd.rank()]), torch.cat(empty))
    groups = [[of_rank(rank, (rank + 1, 2)), of_rank(rank, (3,), torch.int64)] for rank in range(hvd.size())]
    for form in (
        lambda tensors: hvd.grouped_allgather(tensors),
        lambda tensors: hvd.synchronize(hvd.grouped_allgather_async(tensors, name="gathered")),
    ):
        for result, pieces in zip(form(groups[hvd.rank()]), zip(*groups, strict=True), strict=True):
            expect_equal(result, torch.cat(pieces))


def check_broadcast_forms() -> None:
    for root in range(hvd.size()):
        for dtype in (*WHOLE, *FLOATING, torch.bool):
            tensor = of_rank(hvd.rank(), dtype=dtype)
            expect_equal(hvd.broadcast(tensor, root), of_rank(root, dtype=dtype))
            assert torch.equal(tensor, of_rank(hvd.rank(), dtype=dtype))
        tensor = of_rank(hvd.rank())
        expect_equal(hvd.synchronize(hvd.broadcast_async(tensor, root, name="b")), of_rank(root))
        assert hvd.synchronize(hvd.broadcast_async_(tensor, root_rank=root)) is tensor
        expect_equal(tensor, of_rank(root))
        tensor = of_rank(hvd.rank(), ())
        assert hvd.broadcast_(tensor, root) is tensor
        expect_equal(tensor, of_rank(root, ()))


def check_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = [of_rank(r, (2 * size, 3)) for r in range(size)]
    expected = torch.cat([part[2 * rank : 2 * rank + 2] for part in rows])
    expect_equal(hvd.alltoall(rows[rank]), expected)
    result, received = hvd.synchronize(hvd.alltoall_async(rows[rank], name="exchange"))
    expect_equal(result, expected)
    assert received.tolist() == [2] * size
    splits = torch.arange(size)  # r rows for rank r
    result, received = hvd.alltoall(rows[rank][: int(splits.sum())], splits)
    start = int(splits[:rank].sum())
    expect_equal(result, torch.cat([part[start : start + rank] for part in rows]))
    assert received.tolist() == [rank] * size
    assert received.dtype is splits.dtype
    _, received = hvd.alltoall(rows[rank], splits=[2] * size)
    assert received.dtype is torch.int32


def check_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    shape = (2 * size + 1, 3)  # the first rank gets one row more
    reduced = total(of_all(shape))
    start = 2 * rank + min(rank, 1)
    part = reduced[start : start + 2 + (rank == 0)]
    tensor = of_rank(rank, shape)
    expect_equal(hvd.reducescatter(tensor, op=hvd.Sum), part)
    assert torch.allclose(hvd.reducescatter(tensor).double(), part / size)
    expect_equal(hvd.synchronize(hvd.reducescatter_async(tensor, op=hvd.Sum, name="scattered")), part)
    scaled = hvd.reducescatter(tensor, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert torch.allclose(scaled.double(), part / 2)
    expect_equal(hvd.reducescatter(tensor, op=hvd.Sum, compression=hvd.Compression.bf16), part)
    handle = hvd.grouped_reducescatter_async([tensor, tensor * 2], op=hvd.Sum)
    for one, two in (hvd.synchronize(handle), hvd.grouped_reducescatter([tensor, tensor * 2], op=hvd.Sum)):
        expect_equal(one, part)
        expect_equal(two, 2 * part)
    expect_error(lambda: hvd.reducescatter(torch.tensor(1.0)), "along axis 0")
    expect_error(lambda: hvd.reducescatter(tensor, op=hvd.Adasum), "Adasum")


def check_sparse_allreduce() -> None:
    def sparse(rank: int) -> torch.Tensor:
        indices = torch.tensor([[0, rank + 1, 0]])
        return torch.sparse_coo_tensor(indices, of_rank(rank, (3, 2)), (hvd.size() + 1, 2), check_invariants=True)

    expected = total(sparse(rank).to_dense() for rank in range(hvd.size()))
    result = hvd.synchronize(hvd.sparse_allreduce_async(sparse(hvd.rank()), name="sparse", op=hvd.Sum))
    assert result.is_sparse
    expect_equal(result.to_dense(), expected)
    handle = hvd.sparse_allreduce_async(sparse(hvd.rank()))
    assert torch.allclose(handle().to_dense().double(), expected / hvd.size())
    other = torch.ones(2 + hvd.rank() % 2, 3).to_sparse(1)
    handle = hvd.sparse_allreduce_async(other)
    expect_error(lambda: hvd.synchronize(handle), "differ: rank 0: [2, 3]; rank 1: [3, 3]")
    expect_error(lambda: hvd.sparse_allreduce_async(torch.ones(2)), "takes a sparse COO tensor")
    expect_error(lambda: hvd.sparse_allreduce_async(sparse(0), op=hvd.Max), "expected Average or Sum")


def check_ranks_may_submit_in_different_order() -> None:
    names = [f"order {number}" for number in range(6)]
    order = names if hvd.rank() % 2 == 0 else names[::-1]
    handles = {
        name: hvd.allreduce_async(of_rank(hvd.rank(), seed=names.index(name)), op=hvd.Sum, name=name) for name in order
    }
    for number, name in enumerate(names):
        expect_equal(hvd.synchronize(handles[name]), total(of_all(seed=number)))


def check_one_rank_ahead_while_others_do_something_else() -> None:
    """Rank 0 has an operation pending that the others submit only after a barrier and a broadcast of all."""
    handle = None
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(of_rank(0), op=hvd.Sum, name="ahead")
    hvd.barrier()
    expect_equal(hvd.broadcast(of_rank(hvd.rank()), 0), of_rank(0))
    if handle is None:
        handle = hvd.allreduce_async(of_rank(hvd.rank()), op=hvd.Sum, name="ahead")
    expect_equal(hvd.synchronize(handle), total(of_all()))


def check_many_operations_from_several_threads() -> None:
    results: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        tensor = of_rank(hvd.rank(), seed=number)
        for _ in range(10):
            results[number] = hvd.allreduce(tensor, op=hvd.Sum, name=f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        expect_equal(results[number], total(of_all(seed=number)))


def check_process_sets() -> None:
    rank, size = hvd.rank(), hvd.size()
    first = hvd.add_process_set(hvd.ProcessSet([0]))
    last = hvd.add_process_set(range(1, size)) if size > 2 else hvd.add_process_set([1])
    own = first if rank == 0 else last
    members = [0] if rank == 0 else list(range(1, size))
    assert own.included()
    assert (first.included(), last.included()) == (rank == 0, rank > 0)
    assert (own.size(), own.rank()) == (len(members), members.index(rank))
    tensor = of_rank(rank)
    everything = of_all()
    expected = total(everything[member] for member in members)
    expect_equal(hvd.allreduce(tensor, op=hvd.Sum, process_set=own), expected)
    assert torch.allclose(hvd.allreduce(tensor, process_set=own).double(), expected / len(members))
    expect_equal(hvd.allgather(tensor, process_set=own), torch.cat([everything[member] for member in members]))
    root = members[-1]  # a rank of the whole job
    expect_equal(hvd.broadcast(tensor, root, process_set=own), everything[root])
    assert hvd.broadcast_object({"rank": rank}, root, process_set=own) == {"rank": root}
    assert hvd.allgather_object(rank, process_set=own) == members
    other = last if rank == 0 else first
    expect_error(lambda: hvd.allreduce(tensor, process_set=other), "is not one of its ranks")
    expect_error(lambda: hvd.add_process_set([0]), "has the same ranks")
    hvd.barrier(process_set=own)
    assert hvd.remove_process_set(first)
    assert hvd.remove_process_set(last)
    assert not hvd.remove_process_set(first)
    expect_error(lambda: hvd.allreduce(tensor, process_set=own), "not in use")
    expect_error(lambda: hvd.ProcessSet([0, 0]), "every rank once")


def check_init_with_ranks_and_static_process_sets(comm: Communicator) -> None:
    """Queries and collectives raise after ``shutdown``; ``init`` may then bring process sets, or a smaller world."""
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    assert not hvd.is_initialized()
    expect_error(hvd.rank, "init")
    expect_error(lambda: hvd.allreduce(torch.ones(2)), "init")
    world.use(comm)
    only_first, all_but_first = hvd.ProcessSet([0]), hvd.ProcessSet(range(1, size))
    expect_error(only_first.size, "not in use")
    hvd.init(process_sets=[only_first, all_but_first])
    own = only_first if rank == 0 else all_but_first
    assert own.included()
    assert hvd.allgather_object(rank, process_set=own) == ([0] if rank == 0 else list(range(1, size)))
    hvd.shutdown()
    world.use(comm)
    hvd.init(comm=list(range(1, size)) if rank else [0])
    assert (hvd.rank(), hvd.size()) == ((rank - 1, size - 1) if rank else (0, 1))
    assert hvd.allgather_object(rank) == (list(range(1, size)) if rank else [0])
    hvd.shutdown()
    world.use(comm)
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)


def check_join() -> None:
    """Rank r takes part in r + 1 allreduces: the others go on with zeros of those who joined."""
    for step in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.ones(3), name=f"uneven {step}")
        assert torch.allclose(result, torch.full((3,), (hvd.size() - step) / hvd.size()))
    assert hvd.join() == hvd.size() - 1
    expect_equal(hvd.allreduce(of_rank(hvd.rank()), op=hvd.Sum), total(of_all()))


def check_only_allreduces_while_a_rank_has_joined() -> None:
    if hvd.rank() > 0:
        tensor = of_rank(1)
        for call in (
            lambda: hvd.allgather(tensor, name="late gather"),
            lambda: hvd.broadcast(tensor, 1, name="late broadcast"),
            lambda: hvd.alltoall(of_rank(1, (6, 2)), name="late alltoall"),
            lambda: hvd.reducescatter(tensor, name="late reducescatter"),
        ):
            expect_error(call, "has joined", RuntimeError)
    last = hvd.join()
    assert last == hvd.broadcast(torch.tensor(last), 0)


def check_timeline(folder: Path) -> None:
    path = folder / "timeline.json"
    hvd.start_timeline(path)
    hvd.allreduce(of_rank(hvd.rank()), name="written down")
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        document = json.loads(path.read_text())
        events = document if isinstance(document, list) else document["traceEvents"]
        assert "written down" in json.dumps(events)
