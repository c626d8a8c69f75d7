"""Keras 3 on many ranks, on its TensorFlow, torch and JAX backends; with the names and semantics of ``horovod.keras``.

    import ringlet.keras as hvd

    hvd.init()
    x, y = hvd.shard(images, labels)
    model.compile(keras.optimizers.Adam(hvd.scale_learning_rate(0.001)), "sparse_categorical_crossentropy")
    hvd.distribute(model)
    model.fit(x, y, epochs=5)

Started as ``ringlet run -n 2 program.py``. ``optimizer`` exchanges gradients (``exchange`` in NumPy, ``backends`` on
the way there), ``variables`` and ``callbacks`` keep ranks equal, ``model`` puts it all into one call, ``collectives``
are for values, ``elastic`` survives failures. What the names mean beyond Keras: :mod:`ringlet.named.horovod`.
"""

from __future__ import annotations

import keras as _keras

if int(_keras.__version__.partition(".")[0]) < 3:
    raise ImportError(
        f"Keras {_keras.__version__} is installed: ringlet.keras needs Keras 3 (pip install 'keras>=3.12')"
    )

from ringlet.keras import callbacks, collectives, elastic
from ringlet.keras.callbacks import average_metrics
from ringlet.keras.collectives import *  # noqa: F403
from ringlet.keras.exchange import Compression
from ringlet.keras.model import distribute, load_model, save_model, shard, shard_bounds
from ringlet.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from ringlet.keras.rates import scale_learning_rate
from ringlet.keras.variables import broadcast_global_variables, broadcast_model, broadcast_variables
from ringlet.named import horovod
from ringlet.named.horovod import *  # noqa: F403

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "average_metrics",
    "broadcast_global_variables",
    "broadcast_model",
    "broadcast_variables",
    "callbacks",
    "distribute",
    "elastic",
    "load_model",
    "save_model",
    "scale_learning_rate",
    "shard",
    "shard_bounds",
]
__all__ += collectives.__all__
__all__ += horovod.__all__
