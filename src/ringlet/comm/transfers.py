"""Collectives that transfer values without looking at them: broadcast, allgather, alltoall; and the barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ringlet.comm import arrays
from ringlet.comm.collective import Array, Collective, register
from ringlet.errors import CommunicationError

if TYPE_CHECKING:
    from ringlet.comm.channel import Channel
    from ringlet.comm.layered import LayeredCommunicator
    from ringlet.comm.node import Call, NodeCommunicator
    from ringlet.comm.wire import WiredCommunicator

Exchanged = tuple[Array, NDArray[np.int64]]


# -- broadcast --------------------------------------------------------------------------------------------------------
def _prepare_broadcast(size: int, array: Array, root: int, out: Array | None) -> tuple[Array, int, Array]:
    arrays.check_root(root, size)
    in_place = out is array and array.flags.writeable
    return array, root, array if in_place else arrays.result_array(array, out)


def _broadcast_on_node(
    comm: NodeCommunicator, channel: Channel, call: Call, array: Array, root: int, result: Array
) -> Array:
    """Through the root's slots."""
    signature, is_exported, _ = call
    source = arrays.contiguous(array)
    target = result if result.flags.c_contiguous else np.empty(result.shape, result.dtype)
    if is_exported:
        stranger = channel.broadcast(signature, source, target, root)
    else:
        stranger = channel.broadcast(signature, arrays.as_bytes(source), arrays.as_bytes(target), root)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    if target is not result:
        np.copyto(result, target)
    return result


def _broadcast_over_wire(comm: WiredCommunicator, array: Array, root: int, result: Array) -> Array:
    """The bytes of the root."""
    flat = arrays.flat_target(result)
    if comm.rank == root:
        np.copyto(flat.reshape(array.shape), array)
    comm.wire.broadcast(arrays.as_bytes(flat), root)
    return arrays.deliver(flat, result)


def _broadcast_in_layers(comm: LayeredCommunicator, array: Array, root: int, result: Array) -> Array:
    """Inside the root's machine, from its first rank to the first ranks of the others, then inside those."""
    home = next(number for number, ranks in enumerate(comm.machines) if root in ranks)
    if comm.node == home:
        comm.local.broadcast(array, comm.machines[home].index(root), out=result)
    if comm.local.rank == 0:
        comm.cross.broadcast(result, home, out=result)
    if comm.node != home:
        comm.local.broadcast(result, 0, out=result)
    return result


BROADCAST = register(
    Collective[Array](
        "broadcast",
        bind=lambda array, root=0, *, out=None: (array, root, out),
        facts=lambda array, root, _out: (array.dtype, array.shape, f"root {root}"),
        check=lambda dtype, *_: arrays.check_movable(dtype),
        plan=lambda dtype, *_: arrays.is_exported(dtype),
        prepare=_prepare_broadcast,
        single=lambda _comm, array, _root, result: arrays.copied(array, result),
        node=_broadcast_on_node,
        wired=_broadcast_over_wire,
        layered=_broadcast_in_layers,
        example=lambda values, _size: (values, 0, values),
    )
)


# -- allgather --------------------------------------------------------------------------------------------------------
def _prepare_allgather(_size: int, array: Array) -> tuple[Array]:
    arrays.check_rows(array, "allgather")
    return (array,)


def _allgather_on_node(comm: NodeCommunicator, channel: Channel, call: Call, array: Array) -> Array:
    """The ranks tell each other how many rows they have, then all copy from all slots."""
    rows = channel.exchange(call.signature, len(array))
    if isinstance(rows, int):
        comm.raise_disagreement(channel, rows)
    result = np.empty((sum(rows), *array.shape[1:]), array.dtype)
    row_bytes = arrays.row_bytes(array)
    sizes = [count * row_bytes for count in rows]
    source = arrays.exported(arrays.contiguous(array))
    stranger = channel.allgather(call.signature, source, arrays.exported(result), sizes)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    return result


def _allgather_over_wire(comm: WiredCommunicator, array: Array) -> Array:
    """Rows of all ranks; their numbers and kinds are exchanged first."""
    headers = np.zeros((comm.size, 2), np.int64)
    mine = np.array([[len(array), _row_signature(array)]], np.int64)
    comm.wire.allgather(arrays.as_bytes(mine), arrays.as_bytes(headers), [mine.nbytes] * comm.size)
    _check_rows_agree(comm, "allgather", array, headers[:, 1])
    result = np.empty((int(headers[:, 0].sum()), *array.shape[1:]), array.dtype)
    row_bytes = arrays.row_bytes(array)
    counts = [rows * row_bytes for rows in headers[:, 0].tolist()]
    comm.wire.allgather(arrays.as_bytes(arrays.contiguous(array)), arrays.as_bytes(result), counts)
    return result


ALLGATHER = register(
    Collective[Array](
        "allgather",
        bind=lambda array: (array,),
        facts=lambda array: (array.dtype, array.shape[1:], "rows"),
        check=lambda dtype, *_: arrays.check_movable(dtype),
        prepare=_prepare_allgather,
        single=lambda _comm, array: arrays.copied(array),
        node=_allgather_on_node,
        wired=_allgather_over_wire,
        example=lambda values, size: (values[: values.size // size],),
    )
)


# -- alltoall ---------------------------------------------------------------------------------------------------------
def _prepare_alltoall(size: int, array: Array, splits: Sequence[int] | None) -> tuple[Array, list[int]]:
    arrays.check_rows(array, "alltoall")
    return array, arrays.check_splits(len(array), splits, size)


def _alltoall_on_node(
    comm: NodeCommunicator, channel: Channel, call: Call, array: Array, splits: list[int]
) -> Exchanged:
    """All tell all the splits, then every slot holds a piece for each rank."""
    matrix = np.empty((comm.size, comm.size), np.int64)
    sizes = [comm.size * matrix.itemsize] * comm.size
    stranger = channel.allgather(call.signature, np.array(splits, np.int64), matrix, sizes)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    received = matrix[:, comm.rank].copy()
    result = np.empty((int(received.sum()), *array.shape[1:]), array.dtype)
    source = arrays.exported(arrays.contiguous(array))
    pieces = (matrix * arrays.row_bytes(array)).reshape(-1).tolist()
    stranger = channel.alltoall(call.signature, source, arrays.exported(result), pieces)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    return result, received


def _alltoall_over_wire(comm: WiredCommunicator, array: Array, splits: list[int]) -> Exchanged:
    """Rows for every rank; their numbers and kinds are exchanged first."""
    headers = np.array([[rows, _row_signature(array)] for rows in splits], np.int64)
    received = np.zeros_like(headers)
    pairs = [headers.itemsize * 2] * comm.size
    comm.wire.alltoall(arrays.as_bytes(headers), pairs, arrays.as_bytes(received), pairs)
    _check_rows_agree(comm, "alltoall", array, received[:, 1])
    row_bytes = arrays.row_bytes(array)
    result = np.empty((int(received[:, 0].sum()), *array.shape[1:]), array.dtype)
    comm.wire.alltoall(
        arrays.as_bytes(arrays.contiguous(array)),
        [rows * row_bytes for rows in splits],
        arrays.as_bytes(result),
        [rows * row_bytes for rows in received[:, 0].tolist()],
    )
    return result, received[:, 0].copy()


ALLTOALL = register(
    Collective[Exchanged](
        "alltoall",
        bind=lambda array, splits=None: (array, splits),
        facts=lambda array, _splits: (array.dtype, array.shape[1:], "rows"),
        check=lambda dtype, *_: arrays.check_movable(dtype),
        prepare=_prepare_alltoall,
        single=lambda _comm, array, splits: (arrays.copied(array), np.array(splits, np.int64)),
        node=_alltoall_on_node,
        wired=_alltoall_over_wire,
        example=lambda values, _size: (values, None),
    )
)


# -- barrier ----------------------------------------------------------------------------------------------------------
def _barrier_on_node(comm: NodeCommunicator, channel: Channel, call: Call) -> None:
    """One round of sequence numbers."""
    stranger = channel.barrier(call.signature)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)


def _barrier_in_layers(comm: LayeredCommunicator) -> None:
    """Inside, between, inside."""
    comm.local.barrier()
    if comm.local.rank == 0:
        comm.cross.barrier()
    comm.local.barrier()


BARRIER = register(
    Collective[None](
        "barrier",
        bind=lambda: (),
        single=lambda _comm: None,
        node=_barrier_on_node,
        wired=lambda comm: comm.wire.barrier(),
        layered=_barrier_in_layers,
        example=lambda _values, _size: (),
    )
)


# -- rows over a wire -------------------------------------------------------------------------------------------------
def _row_signature(array: Array) -> int:
    return crc32(f"{array.dtype.str} {array.dtype.name} {array.shape[1:]}".encode())


def _check_rows_agree(comm: WiredCommunicator, name: str, array: Array, signatures: NDArray[np.int64]) -> None:
    """If any two ranks disagree, all ranks see it, tell each other what they called, and raise."""
    if (signatures == signatures[comm.rank]).all():
        return
    called = comm.allgather_bytes(f"dtype {array.dtype} and rows of shape {array.shape[1:]}".encode())
    calls = "; ".join(f"rank {rank} with {text.decode()}" for rank, text in enumerate(called))
    raise CommunicationError(
        f"ranks called {name} with arrays that do not fit together: {calls}. "
        "Pass the same dtype and, but for axis 0, the same shape on every rank"
    )
