"""PyTorch's ways to split a model over ranks, each beside the same training by one process on the joined batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
LOCAL_BATCH = 4
CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def network() -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 10), nn.Tanh(), nn.Linear(10, 2))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Joined batches of all ranks."""
    generator = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        inputs = torch.randn(dist.get_world_size() * LOCAL_BATCH, 6, generator=generator)
        yield inputs, inputs[:, :2].sin()


def share(values: Tensor) -> Tensor:
    """This rank's part of a joined batch."""
    return values.chunk(dist.get_world_size())[dist.get_rank()]


def train(model: Callable[[Tensor], Tensor], optimizer: Any, part: Callable[[Tensor], Tensor] = share) -> None:
    for inputs, targets in batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(model(part(inputs)), part(targets)).backward()
        optimizer.step()


def trained_alone() -> dict[str, Tensor]:
    """The weights of one process that has seen all samples."""
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda values: values)
    return dict(model.state_dict())


def require_weights(found: dict[str, Any], expected: dict[str, Tensor] | None = None) -> None:
    for name, value in (trained_alone() if expected is None else expected).items():
        whole = found[name].full_tensor() if isinstance(found[name], DTensor) else found[name]
        assert torch.allclose(whole, value, **CLOSE), f"{name} differs by {(whole - value).abs().max()}"


def _mesh(*shape: int) -> DeviceMesh:
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])


def _train_sharded(model: Any) -> None:
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


# -- what is checked --------------------------------------------------------------------------------------------------
def fully_sharded_1(_: Path) -> None:
    """Storages of whole parameters are freed and made again in every step."""
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        model = FullyShardedDataParallel(network(), device_id=CPU, sharding_strategy=strategy, use_orig_params=True)
        _train_sharded(model)
        with FullyShardedDataParallel.summon_full_params(model):
            require_weights({name.replace("_fsdp_wrapped_module.", ""): p for name, p in model.named_parameters()})


def fully_sharded_2(_: Path) -> None:
    model = network()
    for layer in model:
        fully_shard(layer, mesh=_mesh(dist.get_world_size()))
    fully_shard(model, mesh=_mesh(dist.get_world_size()))
    _train_sharded(model)
    require_weights(model.state_dict())


def hybrid_sharded(_: Path) -> None:
    """Shards within some ranks, copies between them: both dimensions take a turn to be more than one."""
    size = dist.get_world_size()
    for shape in ((1, size), (size, 1)):
        model = network()
        fully_shard(model, mesh=_mesh(*shape))
        _train_sharded(model)
        require_weights(model.state_dict())
    older = FullyShardedDataParallel(
        network(), device_id=CPU, device_mesh=_mesh(1, size), sharding_strategy=ShardingStrategy.HYBRID_SHARD
    )
    _train_sharded(older)
    with FullyShardedDataParallel.summon_full_params(older):
        require_weights(dict(older.module.state_dict()))


def distributed_tensors(_: Path) -> None:
    mesh, size = init_device_mesh("cpu", (dist.get_world_size(),)), dist.get_world_size()
    torch.manual_seed(0)
    one, other = torch.randn(4 * size, 6), torch.randn(6, 5)
    rows = distribute_tensor(one, mesh, [Shard(0)])
    assert rows.to_local().shape == (4, 6)
    assert torch.allclose((rows @ distribute_tensor(other, mesh, [Replicate()])).full_tensor(), one @ other, **CLOSE)
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.full_tensor(), one)
    assert torch.allclose(columns.sum().full_tensor(), one.sum(), **CLOSE)
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    alone = network()
    assert torch.allclose(model(one[:, :6]), alone(one[:, :6]), **CLOSE)


def distributed_checkpoints(folder: Path) -> None:
    """Written by all ranks, also in the background; read into a model that is sharded, and a full one by rank 0."""
    model = network()
    fully_shard(model, mesh=_mesh(dist.get_world_size()))
    _train_sharded(model)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "blocking")
    dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "background").result()
    for name in ("blocking", "background"):
        fresh = network()
        fully_shard(fresh, mesh=_mesh(dist.get_world_size()))
        state = {"model": get_model_state_dict(fresh)}
        dcp.load(state, checkpoint_id=folder / name)
        set_model_state_dict(fresh, state["model"])
        require_weights(fresh.state_dict())
    full = trained_alone() if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    fresh = network()
    fully_shard(fresh, mesh=_mesh(dist.get_world_size()))
    set_model_state_dict(fresh, dict(full), options=options)
    require_weights(fresh.state_dict())
    plain = network()
    set_model_state_dict(plain, full, options=options)
    require_weights(plain.state_dict())


def pipelined(_: Path) -> None:
    """A stage of the network per rank; activations and their gradients are messages."""
    rank, size = dist.get_rank(), dist.get_world_size()
    layers = list(network())
    parts = [nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:])]
    assert size == len(parts)
    stage = PipelineStage(parts[rank], rank, size, CPU)
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(parts[rank].parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in batches():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        else:
            losses: list[Tensor] = []
            schedule.step(target=targets, losses=losses)
        optimizer.step()
    expected = trained_alone()
    offset = 2 * rank
    for name, value in parts[rank].state_dict().items():
        number, kind = name.split(".")
        assert torch.allclose(value, expected[f"{int(number) + offset}.{kind}"], **CLOSE), name


def sharded_optimizer(_: Path) -> None:
    model = DistributedDataParallel(network())
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9))
    require_weights(dict(model.module.state_dict()))


def compiled(_: Path) -> None:
    """Buckets are exchanged while a compiled module runs, and a compiled function may call collectives."""
    for options in ({}, {"static_graph": True}):
        model = DistributedDataParallel(copy.deepcopy(network()), **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train(torch.compile(model, backend="aot_eager"), optimizer)
        require_weights(dict(model.module.state_dict()))
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def doubled_sum(values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total * 2

    assert doubled_sum(torch.ones(3)).tolist() == [2.0 * dist.get_world_size()] * 3


CHECKS: tuple[Callable[[Path], None], ...] = (
    fully_sharded_1,
    fully_sharded_2,
    hybrid_sharded,
    distributed_tensors,
    distributed_checkpoints,
    pipelined,
    sharded_optimizer,
    compiled,
)
