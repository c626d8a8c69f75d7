"""The kernels in readable NumPy: the specification of what the compiled ones compute, and what runs without them.

One module per family; each function's formula and rules stand in :class:`ringlet.kernels.contract.Kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ringlet.kernels.contract import PreparedCall
from ringlet.kernels.reference.activations import (
    activation_backward,
    activation_forward,
    softmax_backward,
    softmax_forward,
)
from ringlet.kernels.reference.convolution import (
    bias_backward,
    bias_forward,
    conv2d_backward_data,
    conv2d_backward_weight,
    conv2d_forward,
)
from ringlet.kernels.reference.dense import dense_backward_data, dense_backward_weight, dense_forward
from ringlet.kernels.reference.dropout import dropout, mix32
from ringlet.kernels.reference.losses import loss
from ringlet.kernels.reference.movement import add, pack, unpack
from ringlet.kernels.reference.normalization import (
    batch_norm_backward,
    batch_norm_forward_infer,
    batch_norm_forward_train,
)
from ringlet.kernels.reference.pooling import (
    avg_pool2d_backward,
    avg_pool2d_forward,
    max_pool2d_backward,
    max_pool2d_forward,
)
from ringlet.kernels.reference.tree import add_tree
from ringlet.kernels.reference.updates import (
    adadelta_update,
    adam_update,
    rmsprop_update,
    scale,
    sgd_update,
    sum_squares,
)

name = "reference"

__all__ = [
    "activation_backward",
    "activation_forward",
    "adadelta_update",
    "adam_update",
    "add",
    "add_tree",
    "avg_pool2d_backward",
    "avg_pool2d_forward",
    "batch_norm_backward",
    "batch_norm_forward_infer",
    "batch_norm_forward_train",
    "bias_backward",
    "bias_forward",
    "conv2d_backward_data",
    "conv2d_backward_weight",
    "conv2d_forward",
    "dense_backward_data",
    "dense_backward_weight",
    "dense_forward",
    "dropout",
    "in_turn",
    "loss",
    "max_pool2d_backward",
    "max_pool2d_forward",
    "mix32",
    "name",
    "pack",
    "prepare",
    "rmsprop_update",
    "scale",
    "sgd_update",
    "softmax_backward",
    "softmax_forward",
    "sum_squares",
    "unpack",
]


def prepare(kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
    """See the contract."""
    return partial(globals()[kernel], *arrays, **options)


def in_turn(calls: Sequence[PreparedCall]) -> PreparedCall:
    """See the contract."""

    def run() -> None:
        for call in calls:
            call()

    return run
