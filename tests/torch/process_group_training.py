"""Stock DDP in all its forms over the process group, beside training on the joined batch by one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from process_group_checks import begin
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError

STEPS = 4
LOCAL_BATCH = 6


class Network(nn.Module):
    """Large enough for several buckets; a layer that is not used unless asked for."""

    def __init__(self, *, unused: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), *([nn.BatchNorm2d(8)] if norm else []), nn.Flatten(), nn.Linear(288, 64)
        )
        self.head = nn.Linear(64, 10)
        self.idle = nn.Linear(5, 5) if unused else None

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images).relu())


def ddp_variants(comm: Communicator) -> None:
    """Every way of DDP gives the weights of one process that trains on all samples."""
    begin(comm)
    close = {"rtol": 1e-4, "atol": 1e-6}
    exact = {
        "plain": {},
        "views": {"gradient_as_bucket_view": True},
        "many buckets": {"bucket_cap_mb": 0.01},
        "static graph": {"static_graph": True},
        "unused": {"find_unused_parameters": True, "network": {"unused": True}},
        "no synchronised buffers": {"forward_sync_buffers": False},
        "hook": {"hook": lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook)},
        "built-in hook": {"hook": lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)},
        "accumulated": {"accumulate": 2},
        "channels last": {"channels_last": True},
        "bfloat16 buckets": {"hook": lambda model: model.register_comm_hook(None, _as_bfloat16)},
        "float16 buckets": {"hook": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook)},
        "sharded optimizer": {"sharded": True},
    }
    for name, options in exact.items():
        expected, found = _train(comm, **options)
        limits = {"rtol": 0.05, "atol": 0.02} if "float16" in name else close
        for key, value in expected.items():
            assert torch.allclose(value, found[key], **limits), f"{name}: {key}"
        _require_same_weights(comm, found, name)
    for name, hook in _lossy_hooks().items():
        _, found = _train(comm, hook=hook)
        _require_same_weights(comm, found, name)
    normalised(comm)
    uneven_inputs(comm)
    sparse_gradients(comm)
    different_networks(comm)
    dist.destroy_process_group()


def plain_training(comm: Communicator) -> None:
    """The simplest case, for other numbers of ranks than two."""
    begin(comm)
    expected, found = _train(comm)
    for key, value in expected.items():
        assert torch.allclose(value, found[key], rtol=1e-4, atol=1e-6), key
    _require_same_weights(comm, found, "plain")
    uneven_inputs(comm)
    dist.destroy_process_group()


def _as_bfloat16(state, bucket):  # DDP refuses annotations as texts
    """PyTorch's hook, which DDP refuses under its own name unless there is NCCL."""
    return default_hooks.bf16_compress_hook(state, bucket)


def _lossy_hooks() -> dict[str, Callable[[Any], None]]:
    """Hooks whose callbacks call further collectives and wait for them."""
    return {
        "PowerSGD": lambda model: model.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, use_error_feedback=False, warm_start=False),
            powerSGD_hook.powerSGD_hook,
        ),
        "quantised": lambda model: model.register_comm_hook(
            dist.group.WORLD, quantization_hooks.quantization_pertensor_hook
        ),
    }


def _train(
    comm: Communicator,
    *,
    network: dict[str, Any] | None = None,
    hook: Callable[[Any], None] = lambda _: None,
    accumulate: int = 1,
    channels_last: bool = False,
    sharded: bool = False,
    **options: Any,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of one process that trains on all samples, and of all that train together on their shares."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    torch.manual_seed(1)
    alone = Network(**network or {}).to(memory_format=layout)
    torch.manual_seed(comm.rank)  # DDP takes over the weights of rank 0
    own = Network(**network or {}).to(memory_format=layout)
    if comm.rank == 0:
        own = copy.deepcopy(alone)
    together = DistributedDataParallel(own, **options)
    hook(together)
    rates = {"lr": 0.05, "momentum": 0.9}
    optimizers: list[Any] = [torch.optim.SGD(alone.parameters(), **rates)]
    optimizers += [
        ZeroRedundancyOptimizer(together.parameters(), torch.optim.SGD, **rates)
        if sharded
        else torch.optim.SGD(together.parameters(), **rates)
    ]
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for turn in range(accumulate):
            images = torch.randn(comm.size * LOCAL_BATCH, 3, 8, 8, generator=generator)
            labels = torch.randint(10, (comm.size * LOCAL_BATCH,), generator=generator)
            share = slice(comm.rank * LOCAL_BATCH, (comm.rank + 1) * LOCAL_BATCH)
            nn.functional.cross_entropy(alone(images), labels).backward()
            if turn + 1 < accumulate:
                with together.no_sync():
                    nn.functional.cross_entropy(together(images[share]), labels[share]).backward()
            else:
                nn.functional.cross_entropy(together(images[share]), labels[share]).backward()
        for optimizer in optimizers:
            optimizer.step()
    return dict(alone.state_dict()), dict(together.module.state_dict())


def _require_same_weights(comm: Communicator, state: dict[str, Tensor], name: str) -> None:
    for key, value in state.items():
        others = comm.allgather_bytes(value.contiguous().numpy().tobytes())
        assert len(set(others)) == 1, f"{name}: ranks have different {key}"


def normalised(comm: Communicator) -> None:
    """Running statistics are those of rank 0 on all ranks before each step."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Network(norm=True))
    for number in range(3):
        torch.manual_seed(10 * number + comm.rank)
        model(torch.randn(LOCAL_BATCH, 3, 8, 8)).sum().backward()
    model(torch.randn(LOCAL_BATCH, 3, 8, 8))
    statistics = model.module.layers[2]
    assert statistics.num_batches_tracked == 4
    state = {"weights": model.module.head.weight.grad, "bias": statistics.bias.grad}
    _require_same_weights(comm, state, "normalised")


def uneven_inputs(comm: Communicator) -> None:
    """Ranks with fewer batches shadow the others' collectives; all end with the same weights."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(comm.rank)
    steps = 0
    with Join([model]):
        for _ in range(2 + 2 * comm.rank):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(10, (4,))).backward()
            optimizer.step()
            steps += 1
    assert steps == 2 + 2 * comm.rank
    _require_same_weights(comm, dict(model.module.state_dict()), "uneven")


def sparse_gradients(comm: Communicator) -> None:
    """Of an embedding: indices and values of all ranks."""
    torch.manual_seed(0)
    table = nn.Embedding(7, 3, sparse=True)
    model = DistributedDataParallel(table)
    model(torch.tensor([comm.rank, 6])).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    expected = torch.zeros(7, 3)
    expected[: comm.size] = 1 / comm.size
    expected[6] = 1.0
    assert torch.allclose(table.weight.grad.to_dense(), expected)


def different_networks(comm: Communicator) -> None:
    """DDP tells all but rank 0, which learns it by its next exchange; in the backward pass all learn it so."""
    words = r"params\[0\] in this process" if comm.rank else "ranks disagree: rank 0 called broadcast"
    with pytest.raises(RuntimeError if comm.rank else CommunicationError, match=words):
        DistributedDataParallel(nn.Linear(3, 2 + (comm.rank == 0)))
    if comm.rank:
        with pytest.raises(CommunicationError, match="ranks disagree: rank 0 called broadcast"):
            dist.barrier()
    model = DistributedDataParallel(nn.Linear(3, 2))

    def hook(_, bucket):
        wrong = bucket.buffer() if comm.rank == 0 else bucket.buffer()[:1]
        return dist.all_reduce(wrong, async_op=True).get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    with pytest.raises(RuntimeError, match="ranks disagree: rank 0 called allreduce"):
        model(torch.ones(1, 3)).sum().backward()
