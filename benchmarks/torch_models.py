"""The same network in PyTorch, built from its spec the way a PyTorch user would write it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from ringlet.models.spec import ModelSpec, Node

_ACTIVATIONS = {"relu6": nn.ReLU6, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "log_sigmoid": nn.LogSigmoid}


class Add(nn.Module):
    """The sum of its inputs."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return sum(inputs[1:], inputs[0])


class Concat(nn.Module):
    """Its inputs side by side along the channels."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat(inputs, 1)


class GlobalPool(nn.Module):
    """One value per channel."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) if self.kind == "global_avg_pool2d" else x.amax((2, 3))


class TorchModel(nn.Module):
    """A spec as modules; ends in logits (softmax and sigmoid belong to PyTorch's losses).

    ReLU works in place where no one else reads its input, and a value is dropped after its last use: PyTorch at its
    best in time and memory.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        nodes = [node for node in spec.nodes[1:] if node is not spec.nodes[-1] or node.op not in ("softmax", "sigmoid")]
        uses = Counter(name for node in nodes for name in node.inputs)
        self.layers = nn.ModuleList(_module(node, spec, in_place=uses[node.inputs[0]] == 1) for node in nodes)
        self._input = spec.nodes[0].name
        last_use = {name: index for index, node in enumerate(nodes) for name in node.inputs}
        self._steps = [
            (node.name, node.inputs, [name for name in set(node.inputs) if last_use[name] == index])
            for index, node in enumerate(nodes)
        ]
        self._by_node = dict(zip((node.name for node in nodes), self.layers, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {self._input: x}
        del x
        for layer, (name, inputs, finished) in zip(self.layers, self._steps, strict=True):
            result = layer(*[values[source] for source in inputs])
            for source in finished:
                del values[source]
            values[name] = result
        return result

    @torch.no_grad()
    def load(self, tensors: dict[str, Any]) -> None:
        """Take over Ringlet's parameters, so that both start from the same network."""
        for name, value in tensors.items():
            node, _, role = name.rpartition(".")
            target = {"scale": "weight", "shift": "bias"}.get(role, role)
            getattr(self._by_node[node], target).copy_(torch.from_numpy(value))


def _module(node: Node, spec: ModelSpec, *, in_place: bool) -> nn.Module:
    attributes: Any = node.attributes
    source = spec.shapes[node.inputs[0]]
    channels = source[0]
    match node.op:
        case "dense":
            return nn.Linear(channels, attributes["units"], bias=attributes["bias"])
        case "conv2d":
            names = ("kernel", "stride", "padding", "dilation", "groups", "bias")
            return nn.Conv2d(channels, attributes["filters"], *(attributes[name] for name in names))
        case "conv2d_transpose":
            names = ("kernel", "stride", "padding", "output_padding")
            geometry = [attributes[name] for name in names]
            return nn.ConvTranspose2d(channels, attributes["filters"], *geometry, bias=attributes["bias"])
        case "max_pool2d":
            geometry = [attributes[name] for name in ("kernel", "stride", "padding")]
            return nn.MaxPool2d(*geometry, ceil_mode=attributes["ceil_mode"])
        case "avg_pool2d":
            geometry = [attributes[name] for name in ("kernel", "stride", "padding", "ceil_mode")]
            return nn.AvgPool2d(*geometry, count_include_pad=False)
        case "global_avg_pool2d" | "global_max_pool2d":
            return GlobalPool(node.op)
        case "batch_norm":
            kind = nn.BatchNorm2d if len(source) == 3 else nn.BatchNorm1d
            return kind(channels, eps=attributes["epsilon"], momentum=1 - attributes["momentum"])
        case "relu":
            return nn.ReLU(inplace=in_place)
        case "leaky_relu":
            return nn.LeakyReLU(attributes["slope"], inplace=in_place)
        case "dropout":
            return nn.Dropout(attributes["rate"])
        case "flatten":
            return nn.Flatten()
        case "add":
            return Add()
        case "concat":
            return Concat()
        case _:
            return _ACTIVATIONS[node.op]()
