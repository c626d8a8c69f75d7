"""Horovod's interface for PyTorch: put two lines into a training script, and it uses all ranks.

    import ringlet.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Takes tensors, models and optimizers; gives them combined over the ranks that ``ringlet run -n 4 script.py`` starts. The
way of a tensor: ``collectives`` (public names) -> ``operations`` (submissions, gradients) -> ``tensors`` (memory shared
with NumPy) -> :mod:`ringlet.named`. The way of a gradient: ``optimizer`` -> ``exchange`` (hooks) -> ``buckets``. What
the names mean beyond PyTorch: :mod:`ringlet.named.horovod`.
"""

from __future__ import annotations

from ringlet import torch_backend
from ringlet.launch.horovod import run_like_horovod as run
from ringlet.named import CollectiveError, horovod
from ringlet.named.horovod import *  # noqa: F403
from ringlet.named.horovod import HorovodInternalError
from ringlet.torch import collectives, elastic
from ringlet.torch.broadcasting import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    load,
    save,
)
from ringlet.torch.collectives import *  # noqa: F403
from ringlet.torch.data import (
    DistributedSampler,
    UnevenSampler,
    WarmUp,
    average_metrics,
    sample_weighted,
    scaled_rate,
    uneven,
)
from ringlet.torch.optimizer import DistributedOptimizer
from ringlet.torch.sync_batch_norm import SyncBatchNorm
from ringlet.torch.tensors import Compression

torch_backend.register()  # torch.distributed.init_process_group("ringlet"), for DDP

__all__ = [
    "CollectiveError",
    "Compression",
    "DistributedOptimizer",
    "DistributedSampler",
    "HorovodInternalError",
    "SyncBatchNorm",
    "UnevenSampler",
    "WarmUp",
    "allgather_object",
    "average_metrics",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "load",
    "run",
    "sample_weighted",
    "save",
    "scaled_rate",
    "uneven",
]
__all__ += collectives.__all__
__all__ += horovod.__all__
