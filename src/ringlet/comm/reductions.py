"""Collectives that combine values of all ranks, element by element: allreduce and reduce_scatter.

What a channel or a wire cannot combine by itself is sent to the rank that owns that part (or, through shared memory, to
all), combined there in the order of ranks, and rounded once: the same bits on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.comm import arrays
from ringlet.comm.arrays import form_of
from ringlet.comm.collective import Array, Collective, Op, register

if TYPE_CHECKING:
    from ringlet.comm.channel import Channel
    from ringlet.comm.contract import Communicator
    from ringlet.comm.layered import LayeredCommunicator
    from ringlet.comm.node import Call, NodeCommunicator
    from ringlet.comm.wire import WiredCommunicator

GENERIC_CHUNK_BYTES = 1 << 20
"""How much of each rank is combined at once where NumPy does it through shared memory."""


# -- allreduce --------------------------------------------------------------------------------------------------------
def _prepare_allreduce(_size: int, array: Array, op: Op, out: Array | None) -> tuple[Array, Op, Array]:
    in_place = out is array and array.flags.writeable
    return array, op, array if in_place else arrays.result_array(array, out)


def _allreduce_on_node(
    comm: NodeCommunicator, channel: Channel, call: Call, array: Array, op: Op, result: Array
) -> Array:
    """Every rank combines all slots in the order of ranks; with many ranks each a part, which it hands out."""
    signature, form, _ = call
    source = arrays.contiguous(array)
    if form is None:
        _combine_generic(comm, channel, signature, source, op, result)
        return result
    target = result if result.flags.c_contiguous else np.empty(result.shape, result.dtype)
    element, how, is_exported = form
    if is_exported:
        stranger = channel.allreduce(signature, element, how, source, target)
    else:
        stranger = channel.allreduce(signature, element, how, arrays.as_bytes(source), arrays.as_bytes(target))
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    if target is not result:
        np.copyto(result, target)
    return result


def _allreduce_over_wire(comm: WiredCommunicator, array: Array, op: Op, result: Array) -> Array:
    """By the wire itself where it can, else part by part."""
    flat = arrays.flat_target(result)
    if comm.wire.reduces(array.dtype, op):
        np.copyto(flat.reshape(array.shape), array)
        comm.wire.allreduce(flat, Op.SUM if op is Op.AVERAGE else op)
        arrays.finish(op, flat, comm.size)
    else:
        counts = arrays.part_lengths(array.size, comm.size)
        mine = _reduce_part(comm, arrays.contiguous(array).reshape(-1), counts, op)
        sizes = [count * array.dtype.itemsize for count in counts]
        comm.wire.allgather(arrays.as_bytes(mine), arrays.as_bytes(flat), sizes)
    return arrays.deliver(flat, result)


def _allreduce_in_layers(comm: LayeredCommunicator, array: Array, op: Op, result: Array) -> Array:
    """Reduce inside the machine to one part per rank, allreduce the parts between machines, gather inside."""
    wide = arrays.contiguous(array).reshape(-1).astype(arrays.accumulator(array.dtype), copy=False)
    # Every machine has a rank for each of these parts, so that all of its counterparts exist.
    num_parts = min(comm.local_sizes)
    part = _machine_part(comm, wide, Op.SUM if op is Op.AVERAGE else op, num_parts)
    has_part = comm.local.rank < num_parts
    part = _between_machines(comm, part, op, array.dtype) if has_part else np.empty(0, array.dtype)
    np.copyto(result, comm.local.allgather(part).reshape(result.shape))
    return result


def _machine_part(comm: Communicator, flat: Array, op: Op, num_parts: int) -> Array:
    """This rank's part of what the machine's ranks give together; nothing for ranks that have no part."""
    local = comm.local
    if max(comm.local_sizes) == num_parts:
        return local.reduce_scatter(flat, op)
    whole = local.allreduce(flat, op)
    if local.rank >= num_parts:
        return whole[:0]
    return whole[slice(*arrays.part(flat.size, local.rank, num_parts))]


def _between_machines(comm: Communicator, part: Array, op: Op, dtype: np.dtype[Any]) -> Array:
    """Combine the machines' parts. Sums for a 16-bit dtype are wide until the end, then rounded, then gathered."""
    inner = Op.SUM if op is Op.AVERAGE else op
    if part.dtype == dtype:
        total = comm.cross.allreduce(part, inner)
        arrays.finish(op, total, comm.size)
        return total
    share = comm.cross.reduce_scatter(part, inner)
    arrays.finish(op, share, comm.size)
    return comm.cross.allgather(share.astype(dtype))


ALLREDUCE = register(
    Collective[Array](
        "allreduce",
        bind=lambda array, op=Op.SUM, *, out=None: (array, op, out),
        facts=lambda array, op, _out: (array.dtype, array.shape, op),
        check=lambda dtype, _shape, op: arrays.check_reduction(dtype, op),
        plan=lambda dtype, _shape, op: form_of(dtype, op),
        prepare=_prepare_allreduce,
        single=lambda _comm, array, _op, result: arrays.copied(array, result),
        node=_allreduce_on_node,
        wired=_allreduce_over_wire,
        layered=_allreduce_in_layers,
        example=lambda values, _size: (values, Op.SUM, values),
    )
)


# -- reduce_scatter ---------------------------------------------------------------------------------------------------
def _prepare_reduce_scatter(_size: int, array: Array, op: Op) -> tuple[Array, Op]:
    arrays.check_rows(array, "reduce_scatter")
    return array, op


def _reduce_scatter_on_node(comm: NodeCommunicator, channel: Channel, call: Call, array: Array, op: Op) -> Array:
    """Every slot holds a piece for each rank, which combines its pieces."""
    start, stop = arrays.part(len(array), comm.rank, comm.size)
    if call.plan is None:
        whole = np.empty(array.shape, array.dtype)
        _combine_generic(comm, channel, call.signature, arrays.contiguous(array), op, whole)
        return whole[start:stop].copy()
    result = np.empty((stop - start, *array.shape[1:]), array.dtype)
    width = 2 if array.dtype.kind == "c" else 1  # complex numbers travel as pairs
    row = arrays.row_size(array) * width
    counts = [length * row for length in arrays.part_lengths(len(array), comm.size)]
    element, how, _ = call.plan
    source = arrays.exported(arrays.contiguous(array))
    stranger = channel.reduce_scatter(call.signature, element, how, source, arrays.exported(result), counts)
    if stranger >= 0:
        comm.raise_disagreement(channel, stranger)
    return result


def _reduce_scatter_over_wire(comm: WiredCommunicator, array: Array, op: Op) -> Array:
    """Every rank gets its rows from all others and combines them in the order of ranks."""
    rows, row = arrays.part_lengths(len(array), comm.size), arrays.row_size(array)
    counts = [count * row for count in rows]
    mine = _reduce_part(comm, arrays.contiguous(array).reshape(-1), counts, op)
    return mine.reshape(rows[comm.rank], *array.shape[1:])


REDUCE_SCATTER = register(
    Collective[Array](
        "reduce_scatter",
        bind=lambda array, op=Op.SUM: (array, op),
        facts=lambda array, op: (array.dtype, array.shape, op),
        check=lambda dtype, _shape, op: arrays.check_reduction(dtype, op),
        plan=lambda dtype, _shape, op: form_of(dtype, op),
        prepare=_prepare_reduce_scatter,
        single=lambda _comm, array, _op: arrays.copied(array),
        node=_reduce_scatter_on_node,
        wired=_reduce_scatter_over_wire,
        example=lambda values, _size: (values, Op.SUM),
    )
)


# -- what neither channels nor wires combine themselves ---------------------------------------------------------------
def _combine_generic(
    comm: NodeCommunicator, channel: Channel, signature: bytes, source: Array, op: Op, result: Array
) -> None:
    """Through shared memory: gather a chunk of all ranks, combine it with NumPy."""
    flat, target = source.reshape(-1), np.empty(source.size, source.dtype)
    chunk = max(1, GENERIC_CHUNK_BYTES // source.dtype.itemsize)
    for start in range(0, max(flat.size, 1), chunk):
        piece = flat[start : start + chunk]
        gathered = np.empty((comm.size, piece.size), piece.dtype)
        sizes = [piece.nbytes] * comm.size
        stranger = channel.allgather(signature, arrays.exported(piece), arrays.exported(gathered), sizes)
        if stranger >= 0:
            comm.raise_disagreement(channel, stranger)
        target[start : start + chunk] = _combined(op, gathered, gathered.dtype.newbyteorder("="))
    np.copyto(result, target.reshape(result.shape))


def _reduce_part(comm: WiredCommunicator, flat: Array, counts: Sequence[int], op: Op) -> Array:
    """The part of this rank, ``counts[rank]`` elements, combined in the order of ranks and rounded once."""
    received = np.empty((comm.size, counts[comm.rank]), flat.dtype)
    itemsize = flat.dtype.itemsize
    own = [received.shape[1] * itemsize] * comm.size
    sent = [count * itemsize for count in counts]
    comm.wire.alltoall(arrays.as_bytes(flat), sent, arrays.as_bytes(received), own)
    rounded: Array = _combined(op, received, arrays.accumulator(flat.dtype)).astype(flat.dtype, copy=False)
    return rounded


def _combined(op: Op, rows: Array, dtype: np.dtype[Any]) -> Array:
    """The rows, one of each rank, combined in their order in ``dtype``."""
    total: Array = rows[0].astype(dtype)
    for values in rows[1:]:
        arrays.combine(op, total, values)
    arrays.finish(op, total, len(rows))
    return total
