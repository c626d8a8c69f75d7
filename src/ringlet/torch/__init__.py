"""Horovod's interface for PyTorch: put two lines into a training script, and it uses all ranks.

    import ringlet.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Takes tensors, models and optimizers; gives them combined over the ranks that ``ringlet run -n 4 script.py`` starts. The
way of a tensor: ``collectives`` (public names) -> ``autograd`` -> ``operations`` (requests) -> ``tensors`` (memory
shared with NumPy) -> :mod:`ringlet.named`. The way of a gradient: ``optimizer`` -> ``exchange`` (hooks) -> ``buckets``.
"""

from __future__ import annotations

from ringlet import torch_backend
from ringlet.launch.horovod import run_like_horovod as run
from ringlet.named import CollectiveError, ProcessSet
from ringlet.named.queries import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    size,
)
from ringlet.named.session import (
    add_process_set,
    global_process_set,
    init,
    is_initialized,
    remove_process_set,
    shutdown,
    start_timeline,
    stop_timeline,
)
from ringlet.torch import elastic
from ringlet.torch.broadcasting import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from ringlet.torch.collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from ringlet.torch.compression import Compression
from ringlet.torch.handles import poll, synchronize
from ringlet.torch.optimizer import DistributedOptimizer
from ringlet.torch.rates import WarmUp, scaled_rate
from ringlet.torch.sampler import DistributedSampler, UnevenSampler, average_metrics, sample_weighted, uneven
from ringlet.torch.saving import load, save
from ringlet.torch.sync_batch_norm import SyncBatchNorm

HorovodInternalError = CollectiveError
"""Horovod's name of what a failed collective raises."""

torch_backend.register()  # torch.distributed.init_process_group("ringlet"), for DDP

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "DistributedOptimizer",
    "DistributedSampler",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "UnevenSampler",
    "WarmUp",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "average_metrics",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "run",
    "sample_weighted",
    "save",
    "scaled_rate",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
    "uneven",
]
