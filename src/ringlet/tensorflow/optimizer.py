"""Optimizers under ``horovod.tensorflow``'s arguments: those of Keras 3, made distributed by :mod:`ringlet.keras`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ringlet.keras import optimizer as keras_optimizer
from ringlet.named import ProcessSet, Reduction
from ringlet.named.horovod import Compressor
from ringlet.named.session import global_process_set
from ringlet.tensorflow.tensors import Compression


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,  # noqa: ARG001
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Reduction = Reduction.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """:func:`ringlet.keras.DistributedOptimizer` with the arguments of ``horovod.tensorflow``.

    ``use_locking`` is for optimizers of TensorFlow 1, which are refused: use ``DistributedGradientTape`` with them.
    """
    return keras_optimizer.DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
        gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients, num_groups, groups,
        process_set, scale_local_gradients,
    )  # fmt: skip


def PartialDistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Reduction = Reduction.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any | Iterable[Any] | None = None,
    scale_local_gradients: bool = True,
) -> Any:
    """:func:`ringlet.keras.PartialDistributedOptimizer`."""
    return keras_optimizer.PartialDistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
        gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients, num_groups, groups,
        process_set, local_layers, scale_local_gradients,
    )  # fmt: skip
