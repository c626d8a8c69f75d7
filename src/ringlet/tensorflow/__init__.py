"""Horovod's interface for TensorFlow 2: collectives on tensors, eager and inside ``tf.function``, with gradients.

    import ringlet.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = …
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)

Takes tensors, variables and tapes; gives them combined over the ranks that ``ringlet run -n 4 script.py`` starts. The
way of a tensor: ``collectives`` (public names) -> ``operations`` (into the graph and out of it, gradients) ->
:mod:`ringlet.named`. ``tape`` and ``optimizer`` exchange gradients as :mod:`ringlet.keras` does, ``variables`` keep
ranks equal, ``errors`` are TensorFlow's kinds. What the names mean beyond TensorFlow: :mod:`ringlet.named.horovod`.
"""

from __future__ import annotations

from ringlet.named import horovod
from ringlet.named.horovod import *  # noqa: F403
from ringlet.tensorflow import collectives, elastic, places, variables
from ringlet.tensorflow.collectives import *  # noqa: F403
from ringlet.tensorflow.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from ringlet.tensorflow.places import *  # noqa: F403
from ringlet.tensorflow.sync_batch_norm import SyncBatchNormalization
from ringlet.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from ringlet.tensorflow.tensors import Compression
from ringlet.tensorflow.variables import *  # noqa: F403

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",
    "elastic",
]
__all__ += collectives.__all__
__all__ += horovod.__all__
__all__ += places.__all__
__all__ += variables.__all__
