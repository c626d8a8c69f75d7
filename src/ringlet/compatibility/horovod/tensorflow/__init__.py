"""``horovod.tensorflow``: collectives for tensors, and gradients of a tape that are those of all ranks."""

from __future__ import annotations

from ringlet.keras import *  # noqa: F403
from ringlet.keras import __all__ as _names
from ringlet.keras.backends.tensorflow import DistributedGradientTape

__all__ = [*_names, "DistributedGradientTape"]
