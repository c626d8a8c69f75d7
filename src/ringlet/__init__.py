"""Ringlet: distributed deep learning from two cores to a cluster.

The public names are loaded when they are first used, so that ``import ringlet`` costs next to nothing and imports no
framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.comm.contract import Op
    from ringlet.comm.world import (
        allgather,
        allgather_async,
        allreduce,
        allreduce_async,
        alltoall,
        alltoall_async,
        barrier,
        barrier_async,
        broadcast,
        broadcast_async,
        communicator,
        cross_rank,
        cross_size,
        init,
        is_initialized,
        local_rank,
        local_size,
        rank,
        reduce_scatter,
        reduce_scatter_async,
        shutdown,
        size,
    )
    from ringlet.config import RunConfig
    from ringlet.data import Dataset, load_dataset
    from ringlet.errors import RingletError
    from ringlet.inference.predictor import Predictor
    from ringlet.launch.function import run
    from ringlet.losses import loss
    from ringlet.metrics import metric
    from ringlet.models.spec import ModelSpec
    from ringlet.training.loaded_model import LoadedModel, load_model
    from ringlet.training.progress import History
    from ringlet.training.trainer import Trainer
    from ringlet.tuning.search import tune

__version__ = "0.1.0"
"""The version of this package."""

_HOMES = {
    "Dataset": "ringlet.data",
    "History": "ringlet.training.progress",
    "LoadedModel": "ringlet.training.loaded_model",
    "ModelSpec": "ringlet.models.spec",
    "Op": "ringlet.comm.contract",
    "Predictor": "ringlet.inference.predictor",
    "RingletError": "ringlet.errors",
    "RunConfig": "ringlet.config",
    "Trainer": "ringlet.training.trainer",
    "load_dataset": "ringlet.data",
    "load_model": "ringlet.training.loaded_model",
    "loss": "ringlet.losses",
    "metric": "ringlet.metrics",
    "run": "ringlet.launch.function",
    "tune": "ringlet.tuning.search",
}
"""Where public names come from; those that are missing here, from ``ringlet.comm.world``."""

__all__ = [
    "Dataset",
    "History",
    "LoadedModel",
    "ModelSpec",
    "Op",
    "Predictor",
    "RingletError",
    "RunConfig",
    "Trainer",
    "__version__",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "communicator",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "load_dataset",
    "load_model",
    "local_rank",
    "local_size",
    "loss",
    "metric",
    "rank",
    "reduce_scatter",
    "reduce_scatter_async",
    "run",
    "shutdown",
    "size",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name in ("elastic", "keras", "torch"):
        return import_module(f"ringlet.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'ringlet' has no attribute '{name}'")
    value = getattr(import_module(_HOMES.get(name, "ringlet.comm.world")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})
