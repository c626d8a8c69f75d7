"""Keras 3 on many ranks, on its TensorFlow, torch and JAX backends; with the names and semantics of ``horovod.keras``.

    import ringlet.keras as hvd

    hvd.init()
    x, y = hvd.shard(images, labels)
    model.compile(keras.optimizers.Adam(hvd.scale_learning_rate(0.001)), "sparse_categorical_crossentropy")
    hvd.distribute(model)
    model.fit(x, y, epochs=5)

Started as ``ringlet run -n 2 program.py``. ``optimizer`` exchanges gradients (``exchange`` in NumPy, ``backends`` on
the way there), ``variables`` and ``callbacks`` keep ranks equal, ``model`` puts it all into one call, ``collectives``
are for values, ``elastic`` survives failures.
"""

from __future__ import annotations

from ringlet.keras import callbacks, elastic
from ringlet.keras.callbacks.metrics import average_metrics
from ringlet.keras.collectives import (
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_object,
    grouped_allreduce,
    join,
    reducescatter,
)
from ringlet.keras.compression import Compression
from ringlet.keras.data import scale_learning_rate, shard, shard_bounds
from ringlet.keras.model import distribute, load_model, save_model
from ringlet.keras.optimizer import DistributedOptimizer
from ringlet.keras.variables import broadcast_global_variables, broadcast_model, broadcast_variables
from ringlet.named import ProcessSet, Reduction
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

Average = Reduction.AVERAGE
"""The mean over ranks."""
Sum = Reduction.SUM
"""The sum over ranks."""
Adasum = Reduction.ADASUM
"""A sum that adds what is orthogonal and averages what is parallel (Maleki et al. 2021)."""
Min = Reduction.MIN
"""The least value over ranks, element by element."""
Max = Reduction.MAX
"""The largest value over ranks, element by element."""
Product = Reduction.PRODUCT
"""The product over ranks, element by element."""

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "average_metrics",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_model",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "distribute",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "save_model",
    "scale_learning_rate",
    "shard",
    "shard_bounds",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
