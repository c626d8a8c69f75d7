"""Batch normalisation over the samples of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ringlet.keras.exchange import ArgumentError
from ringlet.named import Reduction
from ringlet.named.horovod import Scaling
from ringlet.named.session import global_process_set
from ringlet.tensorflow.collectives import reduced
from ringlet.tensorflow.tensors import Compression


@keras.saving.register_keras_serializable(package="ringlet")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """``keras.layers.BatchNormalization`` whose means and variances in training are those of all ranks' samples.

    Ranks may have batches of different sizes. All ranks must train, and differentiate, at the same time.
    """

    def __init__(self, fused: bool = False, **options: Any) -> None:
        if fused:
            raise ArgumentError("fused=True: SyncBatchNormalization cannot be fused, since ranks meet within it")
        super().__init__(**options)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        """Sums of all ranks: Σx/n and Σx²/n − (Σx/n)², in float32 at least."""
        dtype = tf.float32 if inputs.dtype in (tf.float16, tf.bfloat16) else inputs.dtype
        values, axes = tf.cast(inputs, dtype), list(self._reduction_axes)
        if mask is None:
            weights = tf.ones_like(values)
        else:
            weights = tf.broadcast_to(tf.cast(tf.expand_dims(mask, -1), dtype), tf.shape(values))
        own = [tf.reduce_sum(part, axes) for part in (weights, values * weights, tf.square(values) * weights)]
        sums = reduced([tf.stack(own)], Scaling(Reduction.SUM), Compression.none, None, global_process_set)[0]
        count, total, squares = tf.unstack(sums)
        mean = total / count
        variance = tf.maximum(squares / count - tf.square(mean), 0)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
