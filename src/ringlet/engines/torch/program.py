"""From a spec to a function of PyTorch: its text is written once, so a pass is straight-line code.

``forward(x, parameters, state, masks, training)`` gives what the loss reads and what the network puts out;
``parameters`` and ``state`` are lists of tensors in the order of the spec, ``masks`` the factors of its dropout nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ringlet.models.spec import ModelSpec, Node

Forward = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], bool], tuple[Tensor, Tensor]]


def compile_forward(
    spec: ModelSpec, prediction: str, *, mixed: bool = False, frozen: Set[str] = frozenset()
) -> Forward:
    """The function of a network; the loss reads the value of node ``prediction``; nodes that are ``frozen`` learn not.

    ``mixed``: passes are in bfloat16. A last node after ``prediction``, which nothing learns from, is in float32 then.
    """
    namespace: dict[str, Any] = {"torch": torch, "functional": functional}
    for node in spec.nodes:
        namespace |= node.operation.torch_helpers
    program = compile(source(spec, prediction, mixed=mixed, frozen=frozen), "<network>", "exec")
    exec(program, namespace)  # noqa: S102 - written here, of numbers that the spec has checked
    forward: Forward = namespace["forward"]
    return forward


def source(spec: ModelSpec, prediction: str, *, mixed: bool = False, frozen: Set[str] = frozenset()) -> str:
    """The text of ``forward``."""
    writer = _Writer(spec, frozen)
    lines = ["def forward(x, parameters, state, masks, training):", f"    {writer.name(spec.nodes[0].name)} = x"]
    last_use = {name: index for index, node in enumerate(spec.nodes) for name in node.inputs}
    kept = {prediction, spec.nodes[-1].name}
    for index, node in enumerate(spec.nodes[1:], 1):
        if mixed and node is spec.nodes[-1] and node.name != prediction:
            lines.append(f"    {writer.name(prediction)} = {writer.name(prediction)}.float()")
        lines.append(f"    {writer.name(node.name)} = {writer.expression(node)}")
        done = [writer.name(name) for name in node.inputs if last_use[name] == index and name not in kept]
        if done:
            lines.append(f"    del {', '.join(done)}")
    lines.append(f"    return {writer.name(prediction)}, {writer.name(spec.nodes[-1].name)}")
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes the expression of each node; values are called by their nodes' positions."""

    def __init__(self, spec: ModelSpec, frozen: Set[str]) -> None:
        self._spec, self._frozen = spec, frozen
        self._names = {node.name: f"v{index}" for index, node in enumerate(spec.nodes)}
        self._tensors: dict[str, dict[str, str]] = {node.name: {} for node in spec.nodes}
        for kind, infos in (("parameters", spec.parameters), ("state", spec.state)):
            for index, info in enumerate(infos):
                self._tensors[info.node][info.role] = f"{kind}[{index}]"
        for index, node in enumerate(node for node in spec.nodes if node.operation.is_random):
            self._tensors[node.name]["mask"] = f"masks[{index}]"

    def name(self, node: str) -> str:
        """The variable that holds a node's value."""
        return self._names[node]

    def expression(self, node: Node) -> str:
        """The right-hand side of a node."""
        layer = self._spec.layer(node, self._tensors[node.name], learns=node.name not in self._frozen)
        return node.operation.torch_training(layer, [self._names[name] for name in node.inputs])
