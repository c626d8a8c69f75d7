"""Who this process is, as tensors: answered when the graph runs, which may be elsewhere than where it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ringlet.named import horovod, session
from ringlet.tensorflow.tensors import outside

__all__ = [
    "gpu_available",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
NOT_INITIALIZED, UNKNOWN_SET = -1, -2
"""Horovod's answers of :func:`process_set_included_op` where there is none."""


def rank_op(name: str | None = None) -> Any:
    """This process's number among all."""
    return _answer(horovod.rank, name)


def local_rank_op(name: str | None = None) -> Any:
    """This process's number on its machine."""
    return _answer(horovod.local_rank, name)


def local_size_op(name: str | None = None) -> Any:
    """The number of processes on this machine."""
    return _answer(horovod.local_size, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of processes of a set, by default of all."""
    return _answer(lambda: session.process_sets()[process_set_id].size(), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this process is in the set, 0 if not; -1 before ``init``, -2 if there is no such set."""

    def answer() -> int:
        if not session.is_initialized():
            return NOT_INITIALIZED
        found = session.process_sets().get(process_set_id)
        return UNKNOWN_SET if found is None else int(found.included())

    return _answer(answer, name)


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:  # noqa: ARG001
    """Whether TensorFlow sees a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def _answer(question: Callable[[], int], name: str | None) -> Any:
    (found,) = outside(lambda _: [np.asarray(question(), np.int32)], [], [tf.int32])
    found.set_shape([])
    return tf.identity(found, name=name)
