"""The operations of the native engine: one small class each, found by the spec's name for it."""

from __future__ import annotations

from ringlet.engines.native.fusion import FusedNode
from ringlet.engines.native.operations.activation import ACTIVATIONS, ActivationOperation, Dropout, Softmax
from ringlet.engines.native.operations.base import Needs, Operation, Shapes
from ringlet.engines.native.operations.convolution import Convolution, TransposedConvolution
from ringlet.engines.native.operations.dense import Dense
from ringlet.engines.native.operations.normalization import BatchNorm
from ringlet.engines.native.operations.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from ringlet.engines.native.operations.structure import Add, Concat, Flatten
from ringlet.errors import UnknownNameError

OPERATIONS: dict[str, type[Operation]] = {
    "dense": Dense,
    "conv2d": Convolution,
    "conv2d_transpose": TransposedConvolution,
    "max_pool2d": MaxPool,
    "avg_pool2d": AveragePool,
    "global_avg_pool2d": GlobalAveragePool,
    "global_max_pool2d": GlobalMaxPool,
    "batch_norm": BatchNorm,
    "dropout": Dropout,
    "flatten": Flatten,
    "add": Add,
    "concat": Concat,
    "softmax": Softmax,
    **dict.fromkeys(ACTIVATIONS, ActivationOperation),
}
"""Spec operation to its class."""

__all__ = ["OPERATIONS", "Needs", "Operation", "Shapes", "create_operation"]


def create_operation(fused: FusedNode, shapes: Shapes, *, training: bool) -> Operation:
    """The operation that computes a fused node; ``shapes`` include the lanes."""
    if fused.node.op not in OPERATIONS:
        raise UnknownNameError("operation", fused.node.op, OPERATIONS)
    return OPERATIONS[fused.node.op](fused, shapes, training=training)
