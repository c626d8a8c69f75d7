"""The compiled kernels: the C++ module's functions under the names of :class:`ringlet.kernels.contract.Kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringlet.kernels import _native
from ringlet.kernels.contract import PreparedCall

name = "compiled"

pack = _native.pack
unpack = _native.unpack
add = _native.add
conv2d_forward = _native.conv2d_forward
conv2d_backward_data = _native.conv2d_backward_data
conv2d_backward_weight = _native.conv2d_backward_weight
bias_forward = _native.bias_forward
bias_backward = _native.bias_backward
dense_forward = _native.dense_forward
dense_backward_data = _native.dense_backward_data
dense_backward_weight = _native.dense_backward_weight
max_pool2d_forward = _native.max_pool2d_forward
max_pool2d_backward = _native.max_pool2d_backward
avg_pool2d_forward = _native.avg_pool2d_forward
avg_pool2d_backward = _native.avg_pool2d_backward
batch_norm_forward_train = _native.batch_norm_forward_train
batch_norm_forward_infer = _native.batch_norm_forward_infer
batch_norm_backward = _native.batch_norm_backward
activation_forward = _native.activation_forward
activation_backward = _native.activation_backward
dropout = _native.dropout
softmax_forward = _native.softmax_forward
softmax_backward = _native.softmax_backward
loss = _native.loss
sgd_update = _native.sgd_update
rmsprop_update = _native.rmsprop_update
adam_update = _native.adam_update
adadelta_update = _native.adadelta_update
sum_squares = _native.sum_squares
scale = _native.scale
add_tree = _native.add_tree

in_turn = _native.in_turn


def prepare(kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
    """See the contract; arguments are converted once."""
    call: PreparedCall = getattr(_native.prepare, kernel)(*arrays, **options)
    return call


instruction_set = _native.instruction_set
instruction_sets = _native.instruction_sets
use_instruction_set = _native.use_instruction_set
num_threads = _native.num_threads
set_num_threads = _native.set_num_threads
scratch_bytes = _native.scratch_bytes
