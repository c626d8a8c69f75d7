"""The collectives under Horovod's names, on tensors, variables and ``tf.IndexedSlices``; differentiable.

They work eagerly and inside ``tf.function``, where they run in the order of the program. Operations are keyed by
``name``; without one they must come in the same order on every rank. There is one way from ranks to ranks, so devices
change nothing, and names are used as they are, so ``ignore_name_scope`` does not either. XLA cannot leave what it has
compiled for the CPU: functions with collectives need ``jit_compile=False``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from ringlet.named import ProcessSet, Reduction, horovod
from ringlet.named.horovod import Compressor, Scaling, scaling
from ringlet.named.session import collectives, global_process_set
from ringlet.tensorflow.operations import Call
from ringlet.tensorflow.tensors import Compression, outside, to_tensor

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "reducescatter",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def _unconverted(function: Function) -> Function:
    """``tf.function`` would rewrite it in vain."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


# -- reductions -------------------------------------------------------------------------------------------------------
@_unconverted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",  # noqa: ARG001
    device_sparse: str = "",  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,  # noqa: ARG001
) -> Any:
    """The tensors of all ranks combined, element by element; ``op=None`` means Average.

    Inputs are multiplied by ``prescale_factor``, results by ``postscale_factor``. ``tf.IndexedSlices`` stay sparse:
    their values and indices are gathered. ``average`` is Horovod's old form of ``op``.
    """
    how = scaling(op, average, prescale_factor, postscale_factor, depth=4)
    return reduced([tensor], how, compression, name, process_set)[0]


@_unconverted
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",  # noqa: ARG001
    device_sparse: str = "",  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,  # noqa: ARG001
    name: str | None = None,
) -> list[Any]:
    """:func:`allreduce` of several tensors as one operation: all or none."""
    how = scaling(op, average, prescale_factor, postscale_factor, depth=4)
    return reduced(tensors, how, compression, name, process_set)


def reduced(
    tensors: Sequence[Any], how: Scaling, compression: type[Compressor], name: str | None, process_set: ProcessSet
) -> list[Any]:
    """Dense tensors together in one operation, sparse ones in another."""
    results: list[Any] = list(tensors)
    sparse = [place for place, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [place for place in range(len(results)) if place not in sparse]
    if dense:
        packed = [compression.compress(to_tensor(tensors[place])) for place in dense]
        found = Call("allreduce", name, process_set, how).run([tensor for tensor, _ in packed])
        for place, result, (_, context) in zip(dense, found, packed, strict=True):
            results[place] = compression.decompress(result, context)
    if sparse:
        slices = reduced_slices([tensors[place] for place in sparse], how, name and f"sparse {name}", process_set)
        for place, result in zip(sparse, slices, strict=True):
            results[place] = result
    return results


def reduced_slices(slices: Sequence[Any], how: Scaling, name: str | None, process_set: ProcessSet) -> list[Any]:
    """Sums or averages that stay sparse: what all ranks have, one after the other. An index may come several times."""
    if how.op not in (Reduction.SUM, Reduction.AVERAGE):
        raise NotImplementedError(
            f"tf.IndexedSlices cannot be combined by {how.op}: expected Average or Sum, or sparse_as_dense=True"
        )
    flat = [part for each in slices for part in (each.values, each.indices)]
    gathered = Call("allgather", name, process_set).run(flat)
    size = collectives(process_set).size
    factor = how.prescale * how.postscale / (size if how.op is Reduction.AVERAGE else 1)
    return [
        tf.IndexedSlices(gathered[2 * place] * tf.cast(factor, each.values.dtype), gathered[2 * place + 1],
                         dense_shape=each.dense_shape)
        for place, each in enumerate(slices)
    ]  # fmt: skip


@_unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: Reduction = Reduction.AVERAGE,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,  # noqa: ARG001
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the combined tensors; the first ranks get one row more if they cannot be shared equally."""
    how = scaling(op, None, prescale_factor, postscale_factor)
    return _scattered([tensor], how, compression, name, process_set)[0]


@_unconverted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: Reduction = Reduction.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """:func:`reducescatter` of several tensors as one operation."""
    how = scaling(op, None, prescale_factor, postscale_factor)
    return _scattered(tensors, how, compression, name, process_set)


def _scattered(
    tensors: Sequence[Any], how: Scaling, compression: type[Compressor], name: str | None, process_set: ProcessSet
) -> list[Any]:
    packed = [compression.compress(to_tensor(tensor)) for tensor in tensors]
    if not packed:
        return []
    results = Call("reducescatter", name, process_set, how).run([tensor for tensor, _ in packed])
    return [compression.decompress(result, context) for result, (_, context) in zip(results, packed, strict=True)]


# -- the rest ---------------------------------------------------------------------------------------------------------
@_unconverted
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensors of all ranks, one after the other along the first axis, whose length may differ between ranks."""
    return Call("allgather", name, process_set).run([tensor])[0]


@_unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """:func:`allgather` of several tensors as one operation."""
    return Call("allgather", name, process_set).run(tensors) if tensors else []


@_unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of ``root_rank``, a rank of the whole job; the others pass one of the same shape and dtype."""
    return Call("broadcast", name, process_set, root=root_rank).run([tensor])[0]


@_unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send ``splits[r]`` rows to each rank r (default: equal parts), and give what came.

    With ``splits`` the result is a pair: the rows, and how many came from each rank.
    """
    lengths = None if splits is None else to_tensor(splits)
    rows, received = Call("alltoall", name, process_set).run([tensor], lengths)
    return rows if splits is None else (rows, received)


@_unconverted
def join() -> Any:
    """Contribute zeros to all allreduces of the others until they have joined too; gives the rank that came last."""
    return outside(lambda _: [np.asarray(horovod.join(), np.int32)], [], [tf.int32])[0]
