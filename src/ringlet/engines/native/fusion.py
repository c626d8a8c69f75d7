"""From a spec's nodes to what the native engine runs: ReLU joins what feeds it.

A ReLU between such an operation and a maximum pool moves behind the pool, where there is less to do: the maximum of
rectified values is the rectified maximum, and so are the gradients. Its input then need not outlive the forward pass.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ringlet.models.spec import ModelSpec, Node

TAKES_RELU = frozenset({"conv2d", "conv2d_transpose", "dense", "batch_norm"})
"""Operations whose kernels apply ReLU in the same pass."""

COMMUTES_WITH_RELU = frozenset({"max_pool2d", "global_max_pool2d"})
"""Operations that may come before the ReLU instead of after it."""


@dataclass(frozen=True)
class FusedNode:
    """A node together with the ReLU that is applied to its result; ``output`` names the value it produces."""

    node: Node
    output: str
    relu: bool
    index: int
    """Position of the node in the spec: names its random stream."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values it reads."""
        return self.node.inputs


def fuse(spec: ModelSpec) -> tuple[FusedNode, ...]:
    """The nodes that lead to the output, without the input node, in topological order."""
    used = _ancestors(spec)
    uses = Counter(name for node in spec.nodes if node.name in used for name in node.inputs)
    by_name = {node.name: node for node in spec.nodes}
    absorbed_by = {
        node.inputs[0]: node.name
        for node in spec.nodes
        if node.op == "relu"
        and node.name in used
        and by_name[node.inputs[0]].op in TAKES_RELU
        and uses[node.inputs[0]] == 1
    }
    relus = set(absorbed_by.values())
    postponed = {
        node.inputs[0]: node.name
        for node in spec.nodes
        if node.op in COMMUTES_WITH_RELU and node.inputs[0] in relus and uses[node.inputs[0]] == 1
    }
    rectified = {name for name, relu in absorbed_by.items() if relu not in postponed} | set(postponed.values())
    return tuple(
        FusedNode(node, absorbed_by.get(node.name, node.name), node.name in rectified, index)
        for index, node in enumerate(spec.nodes)
        if node.name in used and node.op != "input" and node.name not in relus
    )


def _ancestors(spec: ModelSpec) -> set[str]:
    """The output and all nodes that it depends on."""
    found = {spec.nodes[-1].name}
    for node in reversed(spec.nodes):
        if node.name in found:
            found.update(node.inputs)
    return found
