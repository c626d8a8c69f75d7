"""Collectives of several machines with several ranks each: combine inside machines, then between, then hand out.

Between two machines each value travels once, not once per rank, and all ranks of a machine share the work of sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm import arrays
from ringlet.comm.contract import Array, Communicator, Op
from ringlet.comm.wired import WiredCommunicator


@final
class Hierarchy:
    """The collectives; ``nodes`` lists the ranks of every machine, ``flat`` joins all ranks."""

    def __init__(
        self, flat: WiredCommunicator, local: Communicator, cross: Communicator, nodes: Sequence[Sequence[int]]
    ) -> None:
        self._flat = flat
        self._local = local
        self._cross = cross
        self._nodes = nodes
        self._node = next(number for number, ranks in enumerate(nodes) if flat.rank in ranks)
        # Every machine has a rank for each of these parts, so that all of its counterparts exist.
        self._num_parts = min(len(ranks) for ranks in nodes)
        self._even = all(len(ranks) == self._num_parts for ranks in nodes)

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """Reduce inside the machine to one part per rank, allreduce the parts between machines, gather inside."""
        arrays.check_reduction(array.dtype, op)
        result = arrays.result_array(array, out)
        wide = arrays.contiguous(array).reshape(-1).astype(arrays.accumulator(array.dtype), copy=False)
        inner = Op.SUM if op is Op.AVERAGE else op
        has_part = self._local.rank < self._num_parts
        part = self._local_part(wide, inner)
        part = self._between(part, op, array.dtype) if has_part else np.empty(0, array.dtype)
        np.copyto(result, self._local.allgather(part).reshape(result.shape))
        return result

    def _local_part(self, flat: Array, op: Op) -> Array:
        """This rank's part of what the machine's ranks give together; nothing for ranks that have no part."""
        if self._even:
            return self._local.reduce_scatter(flat, op)
        whole = self._local.allreduce(flat, op)
        if self._local.rank >= self._num_parts:
            return whole[:0]
        return whole[slice(*arrays.part(flat.size, self._local.rank, self._num_parts))]

    def _between(self, part: Array, op: Op, dtype: np.dtype[np.generic]) -> Array:
        """Combine the machines' parts. Sums for a 16-bit dtype are wide until the end, then rounded, then gathered."""
        inner = Op.SUM if op is Op.AVERAGE else op
        if part.dtype == dtype:
            total = self._cross.allreduce(part, inner)
            arrays.finish(op, total, self._flat.size)
            return total
        share = self._cross.reduce_scatter(part, inner)
        arrays.finish(op, share, self._flat.size)
        return self._cross.allgather(share.astype(dtype))

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array:
        """Inside the root's machine, from its first rank to the first ranks of the others, then inside those."""
        arrays.check_movable(array.dtype)
        arrays.check_root(root, self._flat.size)
        result = arrays.result_array(array, out)
        home = next(number for number, ranks in enumerate(self._nodes) if root in ranks)
        if self._node == home:
            self._local.broadcast(array, list(self._nodes[home]).index(root), out=result)
        if self._local.rank == 0:
            self._cross.broadcast(result, home, out=result)
        if self._node != home:
            self._local.broadcast(result, 0, out=result)
        return result

    def allgather(self, array: Array) -> Array:
        """Over the wire of all ranks."""
        return self._flat.allgather(array)

    def reduce_scatter(self, array: Array, op: Op = Op.SUM) -> Array:
        """Over the wire of all ranks."""
        return self._flat.reduce_scatter(array, op)

    def alltoall(self, array: Array, splits: Sequence[int] | None = None) -> tuple[Array, NDArray[np.int64]]:
        """Over the wire of all ranks."""
        return self._flat.alltoall(array, splits)

    def barrier(self) -> None:
        """Inside, between, inside."""
        self._local.barrier()
        if self._local.rank == 0:
            self._cross.barrier()
        self._local.barrier()
