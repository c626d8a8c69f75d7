"""The fixed tree along which the contributions of shards are added, whatever rank computed which shard.

Floating-point addition is not associative, so the order must not depend on the number of ranks. The tree is that of a
binary counter: node ``(level, number)`` covers the shards ``number * 2^level … (number + 1) * 2^level - 1`` as far as
they exist; its value is its left child's plus its right child's, or its left child's where there is no right one. A
rank computes a contiguous range of shards and adds up every subtree that lies in it; what is left are the roots of a
few subtrees (one, if the number of ranks divides the number of shards and both are powers of two).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


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
