"""Adding up the contributions of all shards over a range of elements: on this machine, then between machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from ringlet.comm.compression import Compression, NoCompression
from ringlet.comm.contract import Communicator
from ringlet.engines.contract import Floats
from ringlet.kernels.contract import Kernels
from ringlet.strategies.ownership import Range
from ringlet.strategies.shard_tree import ShardTree, Subtree, chain
from ringlet.timeline import Timeline

_PLAIN = NoCompression()


@final
class Reduction:
    """Adds ``inputs``, the values of ``subtrees`` on this machine, and those of the machines of ``cross`` into ``out``.

    ``out`` may be one of the inputs: nobody else reads the elements of a range that this rank owns. With ``same_bits``
    the values of all machines are gathered and added along the whole tree; otherwise each machine adds up its own and
    the sums are allreduced. ``cross`` is None for a rank that owns nothing.
    """

    def __init__(
        self,
        *,
        inputs: Sequence[Floats],
        subtrees: Sequence[Subtree],
        tree: ShardTree,
        out: Floats,
        cross: Communicator | None,
        compression: Compression,
        same_bits: bool,
        kernels: Kernels,
    ) -> None:
        self._inputs, self._out, self._kernels, self._compression = inputs, out, kernels, compression
        self._cross = cross
        self._alone = cross is None or cross.size == 1
        self._gathers = same_bits and not self._alone
        self._in_place = len(inputs) == 1 and np.shares_memory(inputs[0][:1], out[:1])
        if self._gathers and cross is not None:
            everywhere = cross.allgather(np.array(subtrees, np.int64)).tolist()
            self._num_gathered = len(everywhere)
            self._tree = tree.sum_of([Subtree(*node) for node in everywhere])
        elif self._alone:
            self._tree = tree.sum_of(subtrees) if cross is not None else []
        else:
            self._tree = chain(len(inputs))

    def run(
        self, elements: Range, timeline: Timeline, *, compressed: bool = True, cross: Communicator | None = None
    ) -> None:
        """Reduce a range that this rank owns; ``cross`` replaces the communicator between machines.

        Every peer on the other machines must call this with the same range.
        """
        part = elements.slice()
        inputs = [values[part] for values in self._inputs]
        between = cross or self._cross
        timeline.mark("reduce")
        if self._gathers and between is not None:
            self._gather(inputs, part, between, timeline)
            return
        if not self._in_place:
            self._kernels.add_tree(inputs, self._tree, self._out[part])
        if not self._alone and between is not None:
            timeline.mark("exchange")
            method = self._compression if compressed else _PLAIN
            method.allreduce(between, self._out[part], out=self._out[part], key=elements)

    def _gather(self, inputs: Sequence[Floats], part: slice, cross: Communicator, timeline: Timeline) -> None:
        timeline.mark("exchange")
        everywhere = cross.allgather(np.stack(inputs))
        timeline.mark("reduce")
        self._kernels.add_tree(list(everywhere), self._tree, self._out[part])
