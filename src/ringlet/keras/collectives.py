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
from ringlet.keras.compression import Compression, Compressor
from ringlet.keras.errors import ArgumentError
from ringlet.named import ProcessSet, Reduction, Request, session


@backends.unconverted
def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Reduction | None = None,
    compression: Compressor = Compression.none,
    process_set: ProcessSet | None = None,
) -> Any:
    """``value`` combined over all ranks; the default is the average.

    Works inside ``tf.function`` and ``jax.jit`` too. ``average`` is Horovod's old form of ``op``.
    """
    results = grouped_allreduce([value], name, average, prescale_factor, postscale_factor, op, compression, process_set)
    return results[0]


@backends.unconverted
def grouped_allreduce(
    values: Sequence[Any],
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Reduction | None = None,
    compression: Compressor = Compression.none,
    process_set: ProcessSet | None = None,
) -> list[Any]:
    """Like :func:`allreduce`, for several values in one operation."""
    reduction = _reduction(op, average)

    def run(arrays: Sequence[Array]) -> list[Array]:
        engine = session.engine(process_set)
        given = name or engine.default_name("allreduce")
        request = Request("allreduce", given, tuple(arrays), None, reduction, prescale_factor, postscale_factor)
        return engine.run(request)

    def run_compressed(arrays: Sequence[Array]) -> list[Array]:
        packed = [compression.compress(array) for array in arrays]
        results = run([array for array, _ in packed])
        return [compression.decompress(array, packed[index][1]) for index, array in enumerate(results)]

    return _with_arrays(values, run_compressed)


@backends.unconverted
def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """The value of rank ``root_rank`` (a rank of the whole job); the others pass one of the same shape and dtype."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        engine = session.engine(process_set)
        given = name or engine.default_name("broadcast")
        return engine.run(Request("broadcast", given, tuple(arrays), root=root_rank))

    return _with_arrays([value], run)[0]


@backends.unconverted
def allgather(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """All ranks' values one after the other along axis 0, whose length may differ; a number counts as one row."""
    array, like = _array(value)
    engine = session.engine(process_set)
    (result,) = engine.run(Request("allgather", name or engine.default_name("allgather"), (np.atleast_1d(array),)))
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
    engine = session.engine(process_set)
    given = name or engine.default_name("reducescatter")
    request = Request("reducescatter", given, (array,), None, op, prescale_factor, postscale_factor)
    (result,) = engine.run(request)
    return like(result)


@backends.unconverted
def alltoall(value: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet | None = None) -> Any:
    """Send ``splits[r]`` rows to each rank r (default: equal parts) and get what the others sent here.

    With ``splits`` the result is a pair: the rows, and how many of them came from each rank.
    """
    array, like = _array(value)
    engine = session.engine(process_set)
    rows = None if splits is None else tuple(int(length) for length in _array(splits)[0])
    given = name or engine.default_name("alltoall")
    received, lengths = engine.run(Request("alltoall", given, (array,), splits=rows))
    if splits is None:
        return like(received)
    return like(received), _array(splits)[1](np.asarray(lengths))


def barrier(process_set: ProcessSet | None = None) -> None:
    """Return when all ranks have come here."""
    engine = session.engine(process_set)
    engine.run(Request("barrier", engine.default_name("barrier")))


def join(process_set: ProcessSet | None = None) -> int:
    """Contribute zeros to all allreduces of the others until they have joined too; gives the rank that came last."""
    engine = session.engine(process_set)
    (last,) = engine.run(Request("join", "join"))
    return int(last)


def broadcast_object(
    value: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """What ``root_rank`` passes, on all ranks: numbers, texts, arrays, and lists and dictionaries of them."""
    return session.broadcast_object(value, root_rank, name=name, process_set=process_set)


def allgather_object(value: Any, name: str | None = None, process_set: ProcessSet | None = None) -> list[Any]:
    """What every rank passes, in the order of ranks."""
    return list(session.allgather_object(value, name=name, process_set=process_set))


def _reduction(op: Reduction | None, average: bool | None) -> Reduction:
    if op is not None and average is not None:
        raise ArgumentError(f"op={op} and average={average} were both given: expected one of them, op is the newer")
    if average is not None:
        return Reduction.AVERAGE if average else Reduction.SUM
    return op or Reduction.AVERAGE


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
