"""What all exports are written from: a network for inference with its tensors, batch normalisation folded away.

Every target walks the same :class:`Network`, so what is true of one export (padding, rounding of folded weights, names)
is true of all.

Batch normalisation in inference is ``y = f * (x - mean) + shift`` with ``f = scale / sqrt(var + epsilon)``: an affine
map per channel. After a convolution or dense layer that no one else reads it vanishes into that layer's weights,
``w' = f * w`` and ``b' = f * (b - mean) + shift``, computed in float64 and rounded once. Elsewhere (in a DenseNet,
after a concatenation) it stays, with the two numbers as its tensors. Dropout does nothing in inference and is left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ringlet.component import Component, Registry
from ringlet.errors import SpecError
from ringlet.inference.description import Description, Weights
from ringlet.models.spec import ModelSpec, Node, Shape
from ringlet.operations import OPERATIONS, Layer
from ringlet.operations.base import ChannelOperation

Floats = NDArray[np.float32]
Tensors = Mapping[str, NDArray[Any]]
PlainRun = Callable[[NDArray[Any]], NDArray[Any]]
"""From stored values to outputs."""


@dataclass(frozen=True)
class Network:
    """A network in the order of its data; the last layer is the output."""

    name: str
    input_name: str
    input_shape: Shape
    layers: tuple[Layer, ...]
    """Without the input."""

    @property
    def output_shape(self) -> Shape:
        """Of one sample."""
        return self.layers[-1].shape

    @property
    def num_values(self) -> int:
        """How many numbers all tensors hold."""
        return sum(tensor.size for layer in self.layers for tensor in layer.tensors.values())


EXPORTERS: Registry[type[Exporter]] = Registry("target", package="ringlet.export", group="exporters")


class Exporter(Component, ABC):
    """A framework that models are exported to."""

    registry: ClassVar[Registry[Any] | None] = EXPORTERS
    precisions: ClassVar[tuple[Weights, ...]] = ("fp32",)
    """Which weights an export may have."""
    inputs_have_names: ClassVar[bool] = False
    """Whether quantisation must feed samples by the name of the input."""
    precision_advice: ClassVar[str] = ""
    """How such a program gets the precision of training, where defaults may compute in less."""

    @abstractmethod
    def build_model(self, network: Network, description: Description) -> Any:
        """The network as a model of the framework."""

    @abstractmethod
    def save(self, model: Any, path: Path, description: Description) -> None:
        """Write such a model; a second file for its weights stands beside it."""

    @abstractmethod
    def open_plainly(self, path: Path) -> PlainRun | None:
        """Open it as a program without Ringlet does, by the defaults of the library; None: as Ringlet does."""


def fold(spec: ModelSpec, tensors: Tensors) -> Network:
    """The network of ``spec`` for inference; ``tensors`` holds its parameters and state by name."""
    own: dict[str, dict[str, NDArray[Any]]] = {node.name: {} for node in spec.nodes}
    for info in (*spec.parameters, *spec.state):
        own[info.node][info.role] = tensors[info.name]
    layers: dict[str, Layer] = {}
    renamed: dict[str, str] = {}
    for node in spec.nodes[1:]:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        if node.operation.is_identity:
            renamed[node.name] = inputs[0]
            continue
        values = own[node.name]
        if isinstance(node.operation, ChannelOperation):
            factor, offset = node.operation.affine(node.attributes, values)
            before = layers.get(inputs[0])
            if before is not None and _takes_in(spec, node, before):
                layers[before.name] = _scaled(before, factor, offset)
                renamed[node.name] = before.name
                continue
            values = {"scale": factor, "shift": offset}
        single = {role: _single(value) for role, value in values.items()}
        layers[node.name] = replace(spec.layer(node, single), inputs=inputs)
    if not layers:
        raise SpecError(f"model '{spec.name}' computes nothing in inference: there is nothing to export")
    return Network(spec.name, spec.nodes[0].name, spec.input_shape, tuple(layers.values()))


def _takes_in(spec: ModelSpec, node: Node, before: Layer) -> bool:
    """Whether the layer before has weights and no one but this node (after dropout) reads it."""
    name = node.inputs[0]
    while len(spec.consumers[name]) == 1 and spec.node(name).operation.is_identity:
        name = spec.node(name).inputs[0]
    has_weights = OPERATIONS[before.op].output_axis is not None
    return has_weights and name == before.name and len(spec.consumers[name]) == 1


def _scaled(layer: Layer, factor: NDArray[np.float64], offset: NDArray[np.float64]) -> Layer:
    weight, axis = layer.tensors["weight"].astype(np.float64), OPERATIONS[layer.op].output_axis
    extents = [-1 if number == axis else 1 for number in range(weight.ndim)]
    bias = factor * layer.tensors["bias"] + offset if "bias" in layer.tensors else offset
    return replace(layer, tensors={"weight": _single(weight * factor.reshape(extents)), "bias": _single(bias)})


def _single(values: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(values, np.float32)
