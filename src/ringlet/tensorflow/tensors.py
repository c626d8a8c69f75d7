"""Tensors and NumPy arrays: the border between TensorFlow and the collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ringlet.comm.contract import Array
from ringlet.named.failures import noted
from ringlet.named.horovod import CastCompressor
from ringlet.tensorflow.errors import translated

_NODE = "ringlet_collective_cannot_be_compiled_by_XLA_so_use_jit_compile_False"
"""XLA's own error shows this name: it has no way out of what it has compiled for the CPU."""


def to_tensor(value: Any) -> Any:
    """Tensors as they are; variables, arrays and numbers as tensors."""
    return tf.convert_to_tensor(value)


def outside(function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """``function`` of the tensors' values: at once when eager, else when the graph runs, in the order of the program.

    Its results have ``dtypes``. In a graph their shapes are not known.
    """
    if tf.executing_eagerly() and not any(tf.is_symbolic_tensor(tensor) for tensor in tensors):
        with translated():
            results = function([np.asarray(tensor) for tensor in tensors])
        return [tf.convert_to_tensor(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]

    def call(*arrays: Array) -> list[Array]:
        with noted():
            return function(list(arrays))

    with tf.device("CPU:0"):
        found = tf.numpy_function(call, list(tensors), list(dtypes), stateful=True, name=_NODE)
    return list(found) if isinstance(found, list | tuple) else [found]


def is_plain_graph() -> bool:
    """Whether a graph of TensorFlow 1 is being made, which runs operations in any order."""
    return not tf.executing_eagerly() and not tf.inside_function()


# -- what travels in place of a tensor --------------------------------------------------------------------------------
class _TensorCompressor(CastCompressor):
    @staticmethod
    def dtype_of(tensor: Any) -> str:
        """The name of its dtype."""
        return str(tf.as_dtype(tensor.dtype).name)

    @staticmethod
    def cast(tensor: Any, dtype: str) -> Any:
        """The same values in another dtype."""
        return tf.cast(tensor, dtype)


class NoneCompressor(_TensorCompressor):
    """Tensors travel as they are."""


class FP16Compressor(_TensorCompressor):
    """Floating tensors travel as float16: 11 significant bits, up to 65504."""

    wire = "float16"


class BF16Compressor(_TensorCompressor):
    """Floating tensors travel as bfloat16: 8 significant bits, the range of float32."""

    wire = "bfloat16"


class Compression:
    """What travels: ``Compression.none``, ``Compression.fp16`` and ``Compression.bf16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
