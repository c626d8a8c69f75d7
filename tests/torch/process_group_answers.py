"""What PyTorch and its libraries ask of a process group besides collectives; every check is one mechanism."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from process_group_checks import begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError

SECOND = timedelta(seconds=1)


def answers(comm: Communicator) -> None:
    """All of them, in one group of three ranks."""
    threads = set(threading.enumerate())
    rank, size = begin(comm)
    for check in (
        devices,
        resizable_storages,
        unequal_sizes,
        split,
        uneven_inputs_by_active_ranks,
        profiled,
        monitored_barriers,
    ):
        check(rank, size)
    dist.destroy_process_group()
    assert set(threading.enumerate()) <= threads, "a thread of a group that is left may meet the end of the interpreter"
    other_devices(comm)


def devices(rank: int, size: int) -> None:
    """As Gloo: the CPU, and CUDA by the way of the CPU."""
    group = dist.group.WORLD
    assert [device.type for device in group._device_types] == ["cpu", "cuda"]
    assert group.bound_device_id is None
    backend = group._get_backend(torch.device("cpu"))
    assert (backend.name(), backend.rank(), backend.size()) == ("ringlet", rank, size)
    assert backend.options._timeout == group.timeout
    assert not backend.supports_splitting
    assert not backend.supports_tensor_alloc(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="No backend type associated with device type xpu"):
        group._get_backend(torch.device("xpu"))
    with pytest.raises(CommunicationError, match="pg_options are dict"):
        dist.new_group(pg_options={"high_priority": True})


def resizable_storages(rank: int, size: int) -> None:
    """A tensor that was exchanged is still the owner of its memory: FSDP frees and fills it in every step."""
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.ones(6, dtype=dtype)
        dist.all_reduce(values)
        whole = torch.empty(6 * size, dtype=dtype)
        dist.all_gather_single(whole, values)
        assert whole.tolist() == [float(size)] * 6 * size
        for tensor in (values, whole):
            tensor.untyped_storage().resize_(0)
            tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
            dist.broadcast(tensor.fill_(rank), 1)
            assert tensor.tolist() == [1.0] * tensor.numel()


def unequal_sizes(rank: int, size: int) -> None:
    """Each rank's output fits its own input, so only all of them together see the fault: and all of them do."""
    with pytest.raises(CommunicationError, match=r"ranks disagree: rank 0 called allgather\(float32, shape \(2,\)"):
        dist.all_gather_single(torch.empty((2 + rank) * size), torch.ones(2 + rank))
    whole = torch.empty(2 * size)
    dist.all_gather_single(whole, torch.full((2,), float(rank)))
    assert whole.view(size, 2)[:, 1].tolist() == [float(other) for other in range(size)]


def split(rank: int, size: int) -> None:
    """Into parts by the function of torch.distributed, and by the method that it has for groups of GPUs."""
    part = dist.split_group(split_ranks=[[2, 0], [1]], group_desc="parts")
    values = torch.tensor([float(rank)])
    dist.all_reduce(values, group=part)
    assert values.item() == (1.0 if rank == 1 else 2.0)
    assert dist.get_process_group_ranks(part) == ([1] if rank == 1 else [0, 2])
    assert part.group_desc == "parts"
    some = dist.split_group(dist.group.WORLD, [[0, 1]], SECOND)
    assert (some is None) == (rank == 2)
    if some is not None:
        assert some.timeout == SECOND
        nested = dist.split_group(some, [[1], [0]])
        assert dist.get_process_group_ranks(nested) == [rank]
    for wrong in (None, [[]], [[0], [0, 1]], [[size]]):
        with pytest.raises(CommunicationError, match="split_group was given"):
            dist.split_group(split_ranks=wrong)
    unknown = dist.group.WORLD.split_group([2, 1], SECOND, group_name="unknown", group_desc="by hand")
    assert (unknown is None) == (rank == 0)
    if unknown is not None:
        values.fill_(rank)
        unknown.allreduce([values]).wait()
        assert values.item() == 3.0
        assert (unknown.rank(), unknown.group_name, unknown.group_desc) == (rank - 1, "unknown", "by hand")
        unknown.shutdown()


def uneven_inputs_by_active_ranks(rank: int, size: int) -> None:
    """Gradients are divided by the number of ranks that still have inputs: C++ keeps the work that counts them."""
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(2 + rank):
            model.zero_grad()
            model(torch.full((1, 3), 6.0)).sum().backward()
            assert model.module.weight.grad is not None
            assert model.module.weight.grad.tolist() == [[6.0] * 3]


def profiled(rank: int, size: int) -> None:
    """Every collective and message is an event with the shapes of its inputs; it ends in another thread."""
    model = DistributedDataParallel(nn.Linear(3, 2))
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        dist.broadcast(torch.ones(4, 5), 0)
        work = dist.isend(torch.ones(2), (rank + 1) % size)
        dist.recv(torch.ones(2), (rank - 1) % size)
        work.wait()
        model(torch.ones(1, 3)).sum().backward()
    events: dict[str, Any] = {event.name: event for event in profile.events() if event.name.startswith("ringlet:")}
    assert set(events) >= {"ringlet:broadcast", "ringlet:send", "ringlet:recv", "ringlet:all_reduce"}
    assert all(event.is_async for event in events.values())
    assert events["ringlet:all_reduce"].input_shapes == [[8]]


def monitored_barriers(rank: int, size: int) -> None:
    """Says who is missing, on all ranks that have come, also while a collective of the same group hangs."""
    for number in range(3):
        dist.monitored_barrier(timeout=timedelta(minutes=1), wait_all_ranks=number == 1)
    hangs = dist.new_group()
    work = dist.all_reduce(torch.ones(1), group=hangs, async_op=True) if rank == 0 else None
    reached = f"Rank {rank} successfully reached monitoredBarrier.* from rank 0"
    if rank != 1:
        message = "Rank 1 failed to pass monitoredBarrier in 300 ms"
        with pytest.raises(RuntimeError, match=message if rank == 0 else f"{reached}: {message}"):
            dist.monitored_barrier(hangs, timedelta(seconds=0.3))
    dist.barrier()
    if work is None:
        dist.all_reduce(torch.ones(1), group=hangs)
    else:
        work.wait()
    if rank == 0:
        with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier in 100 ms"):
            dist.monitored_barrier(timeout=0.1, wait_all_ranks=True)
        with pytest.raises(RuntimeError, match="Rank 0 timed out in monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(0))
    dist.barrier()
    late = dist.new_group()
    if rank == 2:
        with pytest.raises(RuntimeError, match=f"{reached}: it has not come within 50 ms"):
            late.monitored_barrier(timedelta(milliseconds=50))
    dist.barrier()


def other_devices(comm: Communicator) -> None:
    """Tensors of a device that another backend serves never reach this one; meta tensors stand in for CUDA's."""
    begin(comm, "cpu:ringlet,meta:fake")
    group = dist.group.WORLD
    assert [device.type for device in group._device_types] == ["cpu", "meta"]
    values, elsewhere = torch.ones(3), torch.ones(3, device="meta")
    dist.all_reduce(values)
    assert values.tolist() == [float(comm.size)] * 3
    dist.all_reduce(elsewhere)
    dist.all_gather([torch.empty(3, device="meta") for _ in range(comm.size)], elsewhere)
    (other,) = group.devices._groups.values()
    assert dist.get_backend(other) == "meta:fake"
    assert dist.get_process_group_ranks(other) == list(range(comm.size))
    with pytest.raises(CommunicationError, match="cannot split off meta"):
        group.split_group([0], device_types=[torch.device("meta")])
    dist.destroy_process_group()
