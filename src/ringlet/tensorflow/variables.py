"""One rank's variables, and any object, on all ranks. Every rank must call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringlet.named import ProcessSet
from ringlet.named import session as _objects
from ringlet.named.session import global_process_set
from ringlet.tensorflow.operations import Call
from ringlet.tensorflow.tensors import is_plain_graph, to_tensor

__all__ = [
    "allgather_object",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,  # noqa: ARG001
) -> Any:
    """Set all variables to the values they have on ``root_rank``, in one operation; also inside ``tf.function``.

    ``inplace`` is Horovod's: values are copied once either way. In a graph the result is the operation.
    """
    _, updates = _broadcast(variables, root_rank, None, process_set)
    return None if tf.executing_eagerly() else tf.group(*updates)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """:func:`broadcast_variables` that gives the new values, in a graph when all variables have them."""
    values, updates = _broadcast(variables, root_rank, name, process_set)
    with tf.control_dependencies([] if tf.executing_eagerly() else updates):
        return [tf.identity(value) for value in values]


def _broadcast(
    variables: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> tuple[list[Any], list[Any]]:
    """The values of the root, and the operations that assign them."""
    found = list(variables)
    if not found:
        return [], []
    values = Call("broadcast", name, process_set, root=root_rank).run([to_tensor(variable) for variable in found])
    updates = [variable.assign(value) for variable, value in zip(found, values, strict=True)]
    return values, [update for update in updates if update is not None]


def broadcast_global_variables(root_rank: int) -> Any:
    """The global variables of a graph of TensorFlow 1, as they are on ``root_rank``; the result is the operation."""
    if not is_plain_graph():
        raise RuntimeError(
            "there are no global variables outside of graphs of TensorFlow 1: use "
            "broadcast_variables(model.variables, root_rank=0), and likewise for the optimizer's"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


# -- objects: numbers, texts, arrays, and lists and dictionaries of them -----------------------------------------------
def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,  # noqa: ARG001  of TensorFlow 1: objects travel without one
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """What ``root_rank`` passes, on all ranks."""
    return _objects.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,  # noqa: ARG001
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that does :func:`broadcast_object` with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, None, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,  # noqa: ARG001
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """What every rank passes, in the order of ranks."""
    return _objects.allgather_object(obj, name=name, process_set=process_set)
