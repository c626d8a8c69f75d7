"""From the nodes of a spec to values in memory: which nodes are computed as one, and which values share bytes.

*Fusion*: a ReLU joins the operation that feeds it, if that can take it in and no one else reads it. A ReLU between such
an operation and a maximum pool moves after the pool, where there is less to do: the maximum of rectified values is the
rectified maximum, and so are the gradients. Its input then need not outlive the forward pass.

*Placement*: views (flatten, concat) cost nothing, some operations overwrite their input. A value without a parent owns
a storage; a value with a parent lies inside it at a byte offset. Two passes decide:

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

from ringlet.models.spec import ModelSpec, Shape
from ringlet.operations.native import FusedNode, NativeNode, Storage, Tensor

_FOREVER = 1 << 60


def fuse(spec: ModelSpec) -> tuple[FusedNode, ...]:
    """The nodes without the input node, in topological order."""
    absorbed_by = {
        node.inputs[0]: node.name
        for node in spec.nodes
        if node.operation.rectifies
        and spec.node(node.inputs[0]).operation.takes_relu
        and len(spec.consumers[node.inputs[0]]) == 1
    }
    relus = set(absorbed_by.values())
    postponed = {
        node.inputs[0]: node.name
        for node in spec.nodes
        if node.operation.commutes_with_relu and node.inputs[0] in relus and len(spec.consumers[node.inputs[0]]) == 1
    }
    rectified = {name for name, relu in absorbed_by.items() if relu not in postponed} | set(postponed.values())
    return tuple(
        FusedNode(
            node.name,
            node.operation,
            node.attributes,
            node.inputs,
            output=absorbed_by.get(node.name, node.name),
            relu=node.name in rectified,
            index=index,
        )
        for index, node in enumerate(spec.nodes)
        if index and node.name not in relus
    )


def place_values(
    nodes: Sequence[NativeNode],
    shapes: Mapping[str, Shape],
    dtype: np.dtype[np.generic],
    *,
    kept: set[str],
) -> dict[str, Tensor]:
    """A tensor for every value; ``shapes`` include the lanes, ``kept`` values are read after the last node."""
    placement = _Placement(nodes, shapes, dtype, kept=kept)
    placement.link_views()
    placement.link_in_place()
    return placement.tensors()


class _Placement:
    def __init__(
        self,
        nodes: Sequence[NativeNode],
        shapes: Mapping[str, Shape],
        dtype: np.dtype[np.generic],
        *,
        kept: set[str],
    ) -> None:
        self._nodes = nodes
        self._shapes = shapes
        self._dtype = dtype
        self._sizes = {name: math.prod(shape) * dtype.itemsize for name, shape in shapes.items()}
        self._parents: dict[str, tuple[str, int]] = {}
        self._members: dict[str, list[str]] = {name: [name] for name in shapes}
        self._produced = {node.output: index for index, node in enumerate(nodes)}
        self._read_until = self._last_reads(kept)

    def link_views(self) -> None:
        """Pass 1."""
        for node in reversed(self._nodes):
            views = node.views()
            if views and not self._join_inputs(node.output, views):
                for name, offset in views:
                    if name not in self._parents and self._locate(node.output)[0] != name:
                        self._link(name, node.output, offset * self._dtype.itemsize)

    def link_in_place(self) -> None:
        """Pass 2."""
        for index, node in enumerate(self._nodes):
            for name in node.needs().overwritable:
                if self._may_overwrite(index, name, node.output):
                    self._share(name, node.output)
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
        for index, node in enumerate(self._nodes):
            for name in node.inputs:
                until[name] = max(until[name], index)
            needs = node.needs()
            if node.training and needs.input_in_backward:
                kept = kept.union(node.inputs)
            if node.training and needs.output_in_backward:
                kept = kept | {node.output}
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
