"""Collectives on values, and the questions about ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras_common import make_model

import ringlet.keras as hvd
from ringlet.errors import RingletError


def check_kinds_of_values(job: SimpleNamespace) -> dict[str, Any]:
    """Results are of the kind that was given."""
    array = np.full((2, 2), job.rank + 1.0, "float32")
    tensor = keras.ops.convert_to_tensor(array)
    variable = keras.Variable(array)
    half = keras.ops.cast(tensor, "bfloat16")
    kinds = {
        "array": hvd.allreduce(array),
        "tensor": hvd.allreduce(tensor),
        "variable": hvd.allreduce(variable),
        "half": hvd.allreduce(half),
        "scalar": hvd.allreduce(np.float32(job.rank + 1)),
    }
    return {
        "number": [hvd.allreduce(job.rank + 1.0), type(hvd.allreduce(job.rank + 1.0)).__name__],
        "whole": hvd.allreduce(job.rank + 1, op=hvd.Sum),
        "list": hvd.allreduce([1.0, 2.0 * job.rank]).tolist(),
        "values": {name: np.asarray(keras.ops.convert_to_numpy(v), "float64").tolist() for name, v in kinds.items()},
        "are_tensors": [keras.ops.is_tensor(kinds[name]) for name in ("tensor", "variable", "half")],
        "are_arrays": [isinstance(kinds["array"], np.ndarray), isinstance(kinds["scalar"], np.float32)],
        "half_dtype": keras.backend.standardize_dtype(kinds["half"].dtype),
    }


def check_collectives(job: SimpleNamespace) -> dict[str, Any]:
    """Each of them, on arrays and tensors."""
    rank, size = job.rank, job.size
    rows = np.arange(2.0 * (rank + 1)).reshape(rank + 1, 2) + 10 * rank
    tensor = keras.ops.convert_to_tensor(rows.astype("float32"))
    table = np.arange(size * 3.0).reshape(size, 3) * (rank + 1)
    received, splits = hvd.alltoall(np.arange(size + 1.0) + 10 * rank, splits=[2] + [1] * (size - 1))
    return {
        "allgather": hvd.allgather(rows).tolist(),
        "allgather_tensor": keras.ops.convert_to_numpy(hvd.allgather(tensor)).tolist(),
        "allgather_number": hvd.allgather(rank).tolist(),
        "broadcast": hvd.broadcast(rank + 5, 1),
        "broadcast_tensor": keras.ops.convert_to_numpy(hvd.broadcast(tensor[:1] * 0 + rank, 1)).tolist(),
        "reducescatter": hvd.reducescatter(table, op=hvd.Sum).tolist(),
        "reducescatter_average": hvd.reducescatter(np.arange(size + 1.0)).tolist(),
        "alltoall": hvd.alltoall(np.arange(size * 1.0) + 10 * rank).tolist(),
        "alltoall_splits": [received.tolist(), splits.tolist()],
        "grouped": [np.asarray(v).tolist() for v in hvd.grouped_allreduce([np.ones(2) * rank, 3.0 * rank], op=hvd.Sum)],
        "max": hvd.allreduce(rank, op=hvd.Max),
        "scaled": hvd.allreduce(1.0, op=hvd.Sum, prescale_factor=0.5, postscale_factor=10.0),
        "old": hvd.allreduce(1.0, average=False),
        "compressed": float(hvd.allreduce(np.float32([1 + 2**-20]), compression=hvd.Compression.fp16)[0]),
        "object": hvd.broadcast_object({"rank": rank, "names": ["a", "é"]}, 1),
        "objects": hvd.allgather_object([rank, None, 0.5]),
    }


def check_inside_a_graph(job: SimpleNamespace) -> dict[str, Any]:
    """allreduce and broadcast in what is compiled; others say that they cannot, where tensors have no values there."""
    value = keras.ops.convert_to_tensor(np.arange(3, dtype="float32") * (job.rank + 1))

    def compute(x: Any) -> Any:
        return hvd.allreduce(x * 2, op=hvd.Sum), hvd.broadcast(x, 1)

    def refuse(x: Any) -> Any:
        return hvd.allgather(x)

    if job.backend == "tensorflow":
        import tensorflow as tf

        compute, refuse = tf.function(compute), tf.function(refuse)
    elif job.backend == "jax":
        import jax

        compute, refuse = jax.jit(compute), jax.jit(refuse)
    else:
        import torch

        compute = torch.compile(compute, backend="eager")
    results = {"values": [keras.ops.convert_to_numpy(result).tolist() for result in compute(value)], "refused": ""}
    try:
        refuse(value)
    except Exception as error:  # TensorFlow makes another one of it
        results["refused"] = str(error)
    return results


def check_errors(job: SimpleNamespace) -> dict[str, Any]:
    """They reach all ranks, and the next operation works."""
    attempts = {
        "both": lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum),
        "shapes": lambda: hvd.allreduce(np.zeros(2 + job.rank), name="shapes"),
        "dtypes": lambda: hvd.allreduce(np.zeros(2, ["float32", "float64"][job.rank % 2]), name="dtypes"),
        "min": lambda: hvd.DistributedOptimizer("sgd", op=hvd.Min),
        "predivide": lambda: hvd.DistributedOptimizer("sgd", op=hvd.Sum, gradient_predivide_factor=2.0),
        "twice": lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer("sgd")),
        "passes": lambda: hvd.DistributedOptimizer(
            keras.optimizers.SGD(gradient_accumulation_steps=2), backward_passes_per_step=3
        ),
        "uncompiled": lambda: hvd.distribute(make_model()),
        "lengths": lambda: hvd.shard(np.zeros(3), np.zeros(4)),
        "rule": lambda: hvd.scale_learning_rate(0.1, rule="cubic"),
        "unbuilt": lambda: hvd.broadcast_global_variables(0),
    }
    messages = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            messages[name] = "no error"
        except ValueError as error:
            messages[name] = f"{isinstance(error, RingletError)} {error}"
    return {"messages": messages, "next": hvd.allreduce(1.0, op=hvd.Sum)}


def check_questions(job: SimpleNamespace) -> dict[str, Any]:
    """Who am I; what is built."""
    x = np.arange(5)
    return {
        "ranks": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()],
        "is_homogeneous": hvd.is_homogeneous(),
        "built": [hvd.nccl_built(), hvd.ccl_built(), hvd.ddl_built(), hvd.cuda_built(), hvd.rocm_built()],
        "enabled": [hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.mpi_threads_supported()],
        "shards": [hvd.shard(x, rank=rank, size=3).tolist() for rank in range(3)],
        "own_bounds": list(hvd.shard_bounds(5)),
        "rates": [hvd.scale_learning_rate(0.1), hvd.scale_learning_rate(0.1, 4, "sqrt")],
    }
