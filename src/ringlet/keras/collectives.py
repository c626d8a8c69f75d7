"""Collectives on values: NumPy arrays, Keras tensors and variables, numbers. Results are of the kind that was given.

Operations are known by their names, so ranks may call them in different order; without a name the n-th call of a kind
on one rank belongs to the n-th of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Array
from ringlet.keras import backends
from ringlet.keras.exchange import ArgumentError, Compression
from ringlet.named import ProcessSet, Reduction, Submission, session
from ringlet.named.horovod import Compressor, Scaling, join, scaling

__all__ = [
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_object",
    "grouped_allreduce",
    "join",
    "reducescatter",
]


@backends.unconverted
def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Reduction | None = None,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet | None = None,
) -> Any:
    """``value`` combined over all ranks; the default is the average.

    Works inside ``tf.function`` and ``jax.jit`` too. ``average`` is Horovod's old form of ``op``.
    """
    how = scaling(op, average, prescale_factor, postscale_factor)
    return _allreduce([value], name, how, compression, process_set)[0]


@backends.unconverted
def grouped_allreduce(
    values: Sequence[Any],
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Reduction | None = None,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet | None = None,
) -> list[Any]:
    """Like :func:`allreduce`, for several values in one operation."""
    how = scaling(op, average, prescale_factor, postscale_factor)
    return _allreduce(values, name, how, compression, process_set)


def _allreduce(
    values: Sequence[Any],
    name: str | None,
    how: Scaling,
    compression: type[Compressor],
    process_set: ProcessSet | None,
) -> list[Any]:
    def run(arrays: Sequence[Array]) -> list[Array]:
        packed = [compression.compress(array) for array in arrays]
        results = _run("allreduce", [array for array, _ in packed], name, process_set, how)
        return [compression.decompress(array, ctx) for array, (_, ctx) in zip(results, packed, strict=True)]

    return _with_arrays(values, run)


@backends.unconverted
def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """The value of rank ``root_rank`` (a rank of the whole job); the others pass one of the same shape and dtype."""
    return _with_arrays([value], lambda arrays: _run("broadcast", arrays, name, process_set, root=root_rank))[0]


@backends.unconverted
def allgather(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """All ranks' values one after the other along axis 0, whose length may differ; a number counts as one row."""
    array, like = _array(value)
    (result,) = _run("allgather", [np.atleast_1d(array)], name, process_set)
    return like(result)


@backends.unconverted
def reducescatter(
    value: Any,
    name: str | None = None,
    op: Reduction = Reduction.AVERAGE,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> Any:
    """This rank's share of axis 0 of the combined values; the first ranks get one row more if it does not divide."""
    array, like = _array(value)
    how = scaling(op, None, prescale_factor, postscale_factor)
    (result,) = _run("reducescatter", [array], name, process_set, how)
    return like(result)


@backends.unconverted
def alltoall(value: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """Send ``splits[r]`` rows to each rank r (default: equal parts) and get what the others sent here.

    With ``splits`` the result is a pair: the rows, and how many of them came from each rank.
    """
    array, like = _array(value)
    rows = None if splits is None else tuple(int(length) for length in _array(splits)[0])
    received, lengths = _run("alltoall", [array], name, process_set, splits=rows)
    if splits is None:
        return like(received)
    return like(received), _array(splits)[1](np.asarray(lengths))


def broadcast_object(
    value: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """What ``root_rank`` passes, on all ranks: numbers, texts, arrays, and lists and dictionaries of them."""
    return session.broadcast_object(value, root_rank, name=name, process_set=process_set)


def allgather_object(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> list[Any]:
    """What every rank passes, in the order of ranks."""
    return session.allgather_object(value, name=name, process_set=process_set)


def _run(
    kind: str,
    arrays: Sequence[Array],
    name: str | None,
    process_set: ProcessSet | None,
    how: Scaling = Scaling(),  # noqa: B008  it cannot be changed
    **options: Any,
) -> list[Array]:
    collectives = session.collectives(process_set)
    name = name or collectives.default_name(kind)
    combining = how.op, how.prescale, how.postscale
    return collectives.run(Submission(kind, name, tuple(arrays), None, *combining, **options))


def _with_arrays(values: Sequence[Any], function: Callable[[list[Array]], list[Array]]) -> list[Any]:
    """``function`` of the values as arrays; its results as the values were."""
    backend = backends.current()
    if any(backend.is_symbolic(value) for value in values):
        return backend.call(function, [keras.ops.convert_to_tensor(value) for value in values])
    arrays = [_array(value) for value in values]
    results = function([array for array, _ in arrays])
    return [like(result) for (_, like), result in zip(arrays, results, strict=True)]


def _array(value: Any) -> tuple[Array, Callable[[Array], Any]]:
    """The value as an array, and how to make a result of the same kind from another array."""
    if isinstance(value, np.ndarray):
        return value, lambda array: array
    if isinstance(value, np.generic):
        return np.asarray(value), lambda array: array[()] if array.ndim == 0 else array
    if keras.ops.is_tensor(value) or isinstance(value, keras.Variable):
        if backends.current().is_symbolic(value):
            raise ArgumentError(
                "this collective needs a value, but the tensor is symbolic, since a graph is being traced: expected "
                "allreduce or broadcast there, or a call outside of the compiled function"
            )
        name = keras.backend.standardize_dtype(value.dtype)
        return keras.ops.convert_to_numpy(value), lambda array: _tensor(array, name)
    array: NDArray[Any] = np.asarray(value)
    return array, lambda result: result.item() if result.ndim == 0 else result


def _tensor(array: Array, dtype: str) -> Any:
    return keras.ops.convert_to_tensor(array, dtype=dtype if array.dtype.name == dtype else None)
