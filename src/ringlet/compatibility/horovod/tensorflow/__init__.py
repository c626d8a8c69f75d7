"""``horovod.tensorflow``: Ringlet's, and private names that programs use all the same."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

from horovod import keras_2, target_of
from horovod.tensorflow import util
from horovod.tensorflow.util import _executing_eagerly
from ringlet.comm.horovod_variables import MARK
from ringlet.named.horovod import scaling
from ringlet.named.reductions import Reduction
from ringlet.named.reductions import is_power_of_two as check_num_rank_power_of_2
from ringlet.tensorflow import *  # noqa: F403
from ringlet.tensorflow import __all__ as _names

__all__ = [*_names, "_executing_eagerly", "check_num_rank_power_of_2", "handle_average_backwards_compatibility", "util"]


def handle_average_backwards_compatibility(op: Reduction | None, average: bool | None) -> Reduction:
    """The reduction that Horovod's arguments ask for."""
    return scaling(op, average, 1.0, 1.0).op


def __getattr__(name: str) -> ModuleType:
    """Modules below are there without being imported, as Horovod has them."""
    if name.startswith("__") or target_of(f"{__name__}.{name}") is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f"{__name__}.{name}")


if os.environ.get(MARK):
    keras_2.accept()
