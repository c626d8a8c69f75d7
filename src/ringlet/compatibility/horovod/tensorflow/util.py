"""``horovod.tensorflow.util``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Any:
    return tf.function(function)


def vars_to_refs(variables: Any) -> Any:
    """Variables, in lists or not, as what can be compared and hashed."""
    return tuple(vars_to_refs(each) for each in variables) if isinstance(variables, Sequence) else variables.ref()


def refs_to_vars(references: Any) -> Any:
    """What :func:`vars_to_refs` was given."""
    return [refs_to_vars(each) for each in references] if isinstance(references, tuple) else references.deref()
