"""From a spec to a function of PyTorch: its text is written once, so a pass is straight-line code.

``forward(x, parameters, state, masks, training)`` gives what the loss reads and what the network puts out;
``parameters`` and ``state`` are lists of tensors in the order of the spec, ``masks`` the factors of its dropout nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ringlet.engines.torch.expressions import WITHOUT_TENSORS, expression
from ringlet.models.spec import ModelSpec, Node

Forward = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], bool], tuple[Tensor, Tensor]]

_GEOMETRY = {
    "conv2d": ("conv2d", ("stride", "padding", "dilation", "groups")),
    "conv2d_transpose": ("conv_transpose2d", ("stride", "padding", "output_padding")),
    "dense": ("linear", ()),
}


def compile_forward(spec: ModelSpec, prediction: str) -> Forward:
    """The function of a network; the loss reads the value of node ``prediction``."""
    namespace = {"torch": torch, "functional": functional, "batch_norm": batch_norm}
    program = compile(source(spec, prediction), "<network>", "exec")
    exec(program, namespace)  # noqa: S102 - written here, of numbers that the spec has checked
    forward: Forward = namespace["forward"]  # type: ignore[assignment]
    return forward


def source(spec: ModelSpec, prediction: str) -> str:
    """The text of ``forward``."""
    writer = _Writer(spec)
    lines = ["def forward(x, parameters, state, masks, training):", f"    {writer.name(spec.nodes[0].name)} = x"]
    last_use = {name: index for index, node in enumerate(spec.nodes) for name in node.inputs}
    kept = {prediction, spec.nodes[-1].name}
    for index, node in enumerate(spec.nodes[1:], 1):
        lines.append(f"    {writer.name(node.name)} = {writer.expression(node)}")
        done = [writer.name(name) for name in node.inputs if last_use[name] == index and name not in kept]
        if done:
            lines.append(f"    del {', '.join(done)}")
    lines.append(f"    return {writer.name(prediction)}, {writer.name(spec.nodes[-1].name)}")
    return "\n".join(lines) + "\n"


def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    scale: Tensor,
    shift: Tensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """PyTorch's, but a single value per channel has a variance: zero. ``momentum`` is the share of the old value."""
    if training and x.numel() == x.shape[1]:
        unused = running_var.clone()
        running_var.mul_(momentum)
        return _batch_norm(x, running_mean, unused, scale, shift, training, momentum, epsilon)
    return _batch_norm(x, running_mean, running_var, scale, shift, training, momentum, epsilon)


def _batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    scale: Tensor,
    shift: Tensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(x, scale, shift, running_mean, running_var, training, 1 - momentum, epsilon, cudnn)


class _Writer:
    """Writes the expression of each node; values are called by their nodes' positions."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._names = {node.name: f"v{index}" for index, node in enumerate(spec.nodes)}
        self._parameters = {info.name: f"parameters[{index}]" for index, info in enumerate(spec.parameters)}
        self._state = {info.name: f"state[{index}]" for index, info in enumerate(spec.state)}
        dropouts = [node.name for node in spec.nodes if node.op == "dropout"]
        self._masks = {name: f"masks[{index}]" for index, name in enumerate(dropouts)}

    def name(self, node: str) -> str:
        """The variable that holds a node's value."""
        return self._names[node]

    def expression(self, node: Node) -> str:
        """The right-hand side of a node."""
        names = [self._names[name] for name in node.inputs]
        if node.op in WITHOUT_TENSORS:
            shapes = self._spec.shapes
            return expression(node.op, node.attributes, names, shapes[node.inputs[0]], shapes[node.name])
        if node.op == "dropout":
            return f"{names[0]} * {self._masks[node.name]} if training else {names[0]}"
        if node.op == "batch_norm":
            return self._batch_norm(node, names[0])
        function, geometry = _GEOMETRY[node.op]
        bias = self._parameters.get(f"{node.name}.bias", "None")
        given = [names[0], self._parameters[f"{node.name}.weight"], bias]
        return f"functional.{function}({', '.join([*given, *(str(node.attributes[name]) for name in geometry)])})"

    def _batch_norm(self, node: Node, x: str) -> str:
        statistics = ", ".join(self._state[f"{node.name}.{role}"] for role in ("running_mean", "running_var"))
        affine = ", ".join(self._parameters[f"{node.name}.{role}"] for role in ("scale", "shift"))
        numbers = f"{node.attributes['momentum']!r}, {node.attributes['epsilon']!r}"
        return f"batch_norm({x}, {statistics}, {affine}, training, {numbers})"
