"""Adding up the contributions of all shards over a range of elements: on this machine, then between machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from ringlet.comm.compression import Compression, NoCompression
from ringlet.comm.contract import Communicator
from ringlet.engines.contract import Floats
from ringlet.kernels.contract import Kernels
from ringlet.strategies.ownership import Range
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


class Subtree(NamedTuple):
    """A node of the tree, by its highest name: of nodes with equal values the one nearest to the root."""

    level: int
    number: int


ADD = -1
"""In the postfix form of a sum: add the two values on top."""


@dataclass(frozen=True)
class ShardTree:
    """The tree over ``num_shards`` shards."""

    num_shards: int

    def leaf(self, shard: int) -> Subtree:
        """The subtree of one shard."""
        return self._highest(0, shard)

    def parent(self, node: Subtree) -> Subtree:
        """The subtree of ``node`` and its sibling."""
        return self._highest(node.level + 1, node.number // 2)

    def _highest(self, level: int, number: int) -> Subtree:
        while (1 << level) < self.num_shards and number % 2 == 0 and ((number + 1) << level) >= self.num_shards:
            level, number = level + 1, number // 2
        return Subtree(level, number)

    def roots(self, shards: Iterable[int]) -> list[Subtree]:
        """The subtrees that remain when consecutive shards have been added as far as possible."""
        stack: list[Subtree] = []
        for shard in shards:
            self.push(stack, shard)
        return stack

    def push(self, stack: list[Subtree], shard: int) -> int:
        """Put a shard on a stack of subtrees; gives the number of additions, each of the two topmost values."""
        stack.append(self.leaf(shard))
        num_additions = 0
        while len(stack) > 1 and stack[-1].number % 2 == 1 and stack[-2] == (stack[-1].level, stack[-1].number - 1):
            stack.pop()
            stack.append(self.parent(stack.pop()))
            num_additions += 1
        return num_additions

    def depth(self, shards: Iterable[int]) -> int:
        """The largest number of values that adding up ``shards`` keeps at once, the newest one not counted."""
        stack: list[Subtree] = []
        depth = 1
        for shard in shards:
            self.push(stack, shard)
            depth = max(depth, len(stack))
        return depth

    def sum_of(self, values: Sequence[Subtree]) -> list[int]:
        """How to add up the whole tree from the values of subtrees: positions in ``values`` and ``ADD``, in postfix."""
        places = {node: place for place, node in enumerate(values)}
        level = max(self.num_shards - 1, 0).bit_length()
        return self._postfix(level, 0, places)

    def _postfix(self, level: int, number: int, places: dict[Subtree, int]) -> list[int]:
        place = places.get(self._highest(level, number))
        if place is not None:
            return [place]
        right = 2 * number + 1
        if (right << (level - 1)) >= self.num_shards:
            return self._postfix(level - 1, 2 * number, places)
        return [*self._postfix(level - 1, 2 * number, places), *self._postfix(level - 1, right, places), ADD]


def chain(num_values: int) -> list[int]:
    """Add values up one after the other, in postfix."""
    return [0, *(item for value in range(1, num_values) for item in (value, ADD))]
