"""Which activations share memory: views (flatten, concat) cost nothing, some operations overwrite their input.

A value without a parent owns a storage; a value with a parent lies inside it at a byte offset. Two passes decide:

1. *Views*, from the last operation to the first: the inputs of a concatenation move into their slice of the joint
   buffer. A value has one parent, so the input of two concatenations is copied into one of them, unless the smaller
   concatenation is itself a stretch of the larger one (DenseNet), and then it lies there.
2. *In place*, from the first operation to the last: an output takes its input's bytes if nothing that shares those
   bytes is read later, forward or backward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ringlet.engines.native.buffers import Shape, Storage, Tensor
from ringlet.engines.native.operations.base import Operation

_FOREVER = 1 << 60


def place_values(
    operations: Sequence[Operation],
    shapes: Mapping[str, Shape],
    dtype: np.dtype[np.generic],
    *,
    kept: set[str],
) -> dict[str, Tensor]:
    """A tensor for every value; ``shapes`` include the lanes, ``kept`` values are read after the last operation."""
    placement = _Placement(operations, shapes, dtype, kept=kept)
    placement.link_views()
    placement.link_in_place()
    return placement.tensors()


class _Placement:
    def __init__(
        self,
        operations: Sequence[Operation],
        shapes: Mapping[str, Shape],
        dtype: np.dtype[np.generic],
        *,
        kept: set[str],
    ) -> None:
        self._operations = operations
        self._shapes = shapes
        self._dtype = dtype
        self._sizes = {name: math.prod(shape) * dtype.itemsize for name, shape in shapes.items()}
        self._parents: dict[str, tuple[str, int]] = {}
        self._members: dict[str, list[str]] = {name: [name] for name in shapes}
        self._produced = {operation.output: index for index, operation in enumerate(operations)}
        self._read_until = self._last_reads(kept)

    def link_views(self) -> None:
        """Pass 1."""
        for operation in reversed(self._operations):
            views = operation.views()
            if views and not self._join_inputs(operation.output, views):
                for name, offset in views:
                    if name not in self._parents and self._locate(operation.output)[0] != name:
                        self._link(name, operation.output, offset * self._dtype.itemsize)

    def link_in_place(self) -> None:
        """Pass 2."""
        for index, operation in enumerate(self._operations):
            for name in operation.needs().overwritable:
                if self._may_overwrite(index, name, operation.output):
                    self._share(name, operation.output)
                    break

    def tensors(self) -> dict[str, Tensor]:
        """The decision."""
        storages = {name: Storage(name, self._sizes[name]) for name in self._shapes if name not in self._parents}
        tensors = {}
        for name, shape in self._shapes.items():
            root, offset = self._locate(name)
            tensors[name] = Tensor(storages[root], offset, shape, self._dtype)
        return tensors

    def _last_reads(self, kept: set[str]) -> dict[str, int]:
        """For each value the last operation that reads it; forever if the backward pass or the caller reads it."""
        until = dict.fromkeys(self._shapes, -1)
        for index, operation in enumerate(self._operations):
            for name in operation.inputs:
                until[name] = max(until[name], index)
            needs = operation.needs()
            if operation.training and needs.input_in_backward:
                kept = kept.union(operation.inputs)
            if operation.training and needs.output_in_backward:
                kept = kept | {operation.output}
        return until | dict.fromkeys(kept, _FOREVER)

    def _join_inputs(self, output: str, views: tuple[tuple[str, int], ...]) -> bool:
        """Place ``output`` where its inputs already lie side by side; false if they do not."""
        places = [self._locate(name) for name, _ in views]
        bases = {
            (root, at - offset * self._dtype.itemsize) for (root, at), (_, offset) in zip(places, views, strict=True)
        }
        placed = all(name in self._parents for name, _ in views)
        if not placed or len(bases) != 1 or output in self._parents:
            return False
        root, base = bases.pop()
        if root == output or base < 0 or base + self._sizes[output] > self._sizes[root]:
            return False
        self._link(output, root, base)
        return True

    def _may_overwrite(self, index: int, old: str, new: str) -> bool:
        if self._locate(old)[0] == self._locate(new)[0] or (old in self._parents and new in self._parents):
            return False
        done = all(self._read_until[name] <= index for name in self._sharing(old))
        unborn = all(self._produced.get(name, -1) >= index for name in self._sharing(new))
        return done and unborn

    def _share(self, old: str, new: str) -> None:
        if old in self._parents:
            self._link(new, old, 0)
        else:
            self._link(old, new, 0)

    def _sharing(self, value: str) -> list[str]:
        """All values that share bytes with ``value``, itself included."""
        root, begin = self._locate(value)
        end = begin + self._sizes[value]
        return [
            name
            for name in self._members[root]
            if (at := self._locate(name)[1]) < end and begin < at + self._sizes[name]
        ]

    def _link(self, child: str, parent: str, offset: int) -> None:
        self._parents[child] = (parent, offset)
        self._members[self._locate(parent)[0]] += self._members.pop(child)

    def _locate(self, name: str) -> tuple[str, int]:
        offset = 0
        while name in self._parents:
            name, step = self._parents[name]
            offset += step
        return name, offset
