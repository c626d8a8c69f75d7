"""From a spec and its tensors to the network that is exported.

Batch normalisation in inference is ``y = f * (x - mean) + shift`` with ``f = scale / sqrt(var + epsilon)``: an affine
map per channel. Behind a convolution or dense layer that nobody else reads it vanishes into that layer's weights,
``w' = f * w`` and ``b' = f * (b - mean) + shift``, computed in float64 and rounded once. Elsewhere (in a DenseNet,
behind a concatenation) it stays as ``affine``. Dropout does nothing in inference and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import SpecError
from ringlet.export.network import Floats, Layer, Network
from ringlet.models.spec import ModelSpec, Node

Tensors = Mapping[str, NDArray[Any]]

OUTPUT_AXIS = {"conv2d": 0, "conv2d_transpose": 1, "dense": 0}
"""Which axis of the weights counts the outputs, for the operations that take a batch norm in."""


_ROLES = ("weight", "bias", "scale", "shift", "running_mean", "running_var")


def fold(spec: ModelSpec, tensors: Tensors) -> Network:
    """The network of ``spec`` for inference; ``tensors`` holds its parameters and state by name."""
    layers: dict[str, Layer] = {}
    renamed: dict[str, str] = {}
    for node in spec.nodes[1:]:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        own = {role: tensors[name] for role in _ROLES if (name := f"{node.name}.{role}") in tensors}
        before = layers.get(inputs[0])
        if node.op == "dropout":
            renamed[node.name] = inputs[0]
        elif node.op == "batch_norm" and before is not None and _takes_norm(spec, node, before):
            layers[before.name] = _with_norm(before, *_affine(own, node))
            renamed[node.name] = before.name
        else:
            layers[node.name] = _layer(spec, node, inputs, own)
    if not layers:
        raise SpecError(f"model '{spec.name}' computes nothing in inference: there is nothing to export")
    return Network(spec.name, spec.nodes[0].name, spec.input_shape, tuple(layers.values()))


def _layer(spec: ModelSpec, node: Node, inputs: tuple[str, ...], own: Tensors) -> Layer:
    op, attributes = node.op, node.attributes
    if op == "batch_norm":
        factor, offset = _affine(own, node)
        op, attributes, own = "affine", {}, {"scale": factor, "shift": offset}
    values = {role: _single(value) for role, value in own.items()}
    return Layer(node.name, op, inputs, spec.shapes[node.name], attributes, values)


def _affine(own: Tensors, node: Node) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factor and offset of a batch norm: ``f * x + (shift - f * mean)``."""
    scale, shift, mean, variance = (
        own[role].astype(np.float64) for role in ("scale", "shift", "running_mean", "running_var")
    )
    factor = scale / np.sqrt(variance + node.attributes["epsilon"])
    return factor, shift - factor * mean


def _takes_norm(spec: ModelSpec, node: Node, before: Layer) -> bool:
    """Whether the layer before has weights and nobody but this batch norm (behind dropout) reads it."""
    name = node.inputs[0]
    while len(spec.consumers[name]) == 1 and spec.node(name).op == "dropout":
        name = spec.node(name).inputs[0]
    return before.op in OUTPUT_AXIS and name == before.name and len(spec.consumers[name]) == 1


def _with_norm(layer: Layer, factor: NDArray[np.float64], offset: NDArray[np.float64]) -> Layer:
    weight = layer.tensors["weight"].astype(np.float64)
    extents = [1] * weight.ndim
    extents[OUTPUT_AXIS[layer.op]] = -1
    bias = factor * layer.tensors["bias"] + offset if "bias" in layer.tensors else offset
    return replace(layer, tensors={"weight": _single(weight * factor.reshape(extents)), "bias": _single(bias)})


def _single(values: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(values, np.float32)
