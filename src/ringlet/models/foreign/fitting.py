"""Weights from a file into a network: every tensor is checked, and nothing is left out without a word.

The convolutions of a network must all be there, with their shapes. The dense layers at its end may be others: from the
first one that does not fit on they are new, because what they read is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.models.files import ModelFile, is_model_file, load_model_file
from ringlet.models.foreign.names import NameMap, keras_names, torch_names
from ringlet.models.foreign.reading import KERAS_SUFFIXES, TORCH_SUFFIXES, Layers, Roles, read_keras, read_torch
from ringlet.models.spec import ModelSpec, Node

IRRELEVANT = ("momentum", "initializer", "rate", "units", "shape")
"""Attributes in which two networks may differ and yet share weights."""


@dataclass(frozen=True)
class Loaded:
    """Tensors by their names in the network, and what there is to say: nodes that are new, layers that were left."""

    tensors: Mapping[str, NDArray[Any]]
    new: tuple[str, ...]
    left: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def describe(self, path: Path) -> list[str]:
        """What was loaded, what is new and what was left, in words."""
        words = f"weights of {path}: {len(self.tensors)} tensors loaded"
        words += f"; new: {_listed(self.new)}" if self.new else ""
        words += f"; left in the file: {_listed(self.left)}" if self.left else ""
        return [words, *(f"weights of {path}: {remark}" for remark in self.remarks)]


def load_weights(path: Path, spec: ModelSpec) -> Loaded:
    """The tensors of a file that belong to ``spec``; what does not fit is a ModelFileError that names the file."""
    try:
        if path.suffix in KERAS_SUFFIXES:
            return _fit(spec, read_keras(path, spec.name), keras_names(spec), flattens_last=True)
        if path.suffix in TORCH_SUFFIXES and not (path.suffix == ".safetensors" and is_model_file(path)):
            return _fit(spec, _without_convolutions(read_torch(path)), torch_names(spec))
    except ModelFileError as error:
        name = "" if str(path) in str(error) else f"weights {path} do not fit network '{spec.name}': "
        raise ModelFileError(f"{name}{error}") from None
    return _of_model(path, load_model_file(path), spec)


def _of_model(path: Path, file: ModelFile, spec: ModelSpec) -> Loaded:
    """Of another network of Ringlet, whose nodes must be the same but for what comes last."""
    layers: Layers = {}
    for name, values in file.tensors.items():
        owner, _, role = name.rpartition(".")
        layers.setdefault(owner, {})[role] = values
    known = {node.name: node for node in file.spec.nodes}
    for node in spec.nodes:
        other = known.get(node.name)
        if other is not None and node.name in layers and (difference := _difference(node, other)):
            raise ModelFileError(
                f"model file {path} does not fit network '{spec.name}': node '{node.name}' has {difference}"
            )
    names = tuple(node.name for node in _owners(spec))
    try:
        return _fit(spec, layers, NameMap(names))
    except ModelFileError as error:
        raise ModelFileError(
            f"model file {path} ('{file.spec.name}') does not fit network '{spec.name}': {error}"
        ) from None


def _difference(node: Node, other: Node) -> str:
    if node.op != other.op:
        return f"op {node.op}, in the file {other.op}"
    for name, value in node.attributes.items():
        if name not in IRRELEVANT and other.attributes.get(name) != value:
            return f"{name} {value}, in the file {other.attributes.get(name)}"
    return ""


def _without_convolutions(layers: Layers) -> Layers:
    """timm's VGG has its dense layers as convolutions over the whole image, and other names for the last ones."""
    renamed = {"pre_logits.fc1": "classifier.0", "pre_logits.fc2": "classifier.3", "head.fc": "classifier.6"}
    if "pre_logits.fc1" not in layers:
        return layers
    found = {renamed.get(name, name): dict(roles) for name, roles in layers.items()}
    for name in renamed.values():
        if name in found:
            found[name]["weight"] = found[name]["weight"].reshape(len(found[name]["weight"]), -1)
    return found


def _owners(spec: ModelSpec) -> list[Node]:
    """The nodes with tensors, in their order."""
    owners = {info.node for info in (*spec.parameters, *spec.state)}
    return [node for node in spec.nodes if node.name in owners]


def _fit(spec: ModelSpec, layers: Layers, names: NameMap, *, flattens_last: bool = False) -> Loaded:
    """``flattens_last``: the first dense layer reads an image whose channels are innermost, as Keras has it."""
    tensors: dict[str, NDArray[Any]] = {}
    used: set[str] = set()
    new: list[str] = []
    for node, name in _pairs(spec, names):
        wanted: dict[str, tuple[int, ...]] = {
            info.role: info.shape for info in (*spec.parameters, *spec.state) if info.node == node.name
        }
        roles = dict(layers.get(name, {}))
        if flattens_last and node.op == "dense" and "weight" in roles:
            roles["weight"] = _channels_outermost(spec, node, roles["weight"])
        fits = "weight" not in wanted or ("weight" in roles and roles["weight"].shape == wanted["weight"])
        if new or ((node.op == "dense" or node.name == spec.parameters[-1].node) and not fits):
            new.append(node.name)
            continue
        if not roles or not fits:
            shape = "nothing" if not roles else f"shape {roles['weight'].shape}"
            raise ModelFileError(
                f"'{node.name}' needs shape {wanted.get('weight', '')}, the file has {shape} as '{name}'"
            )
        used.add(name)
        _take(node, roles, wanted, names, tensors)
    _absorb_biases(spec, layers, names, tensors)
    left = tuple(name for name, roles in layers.items() if name not in used and roles)
    return Loaded(tensors, tuple(new), left, names.remarks)


def _pairs(spec: ModelSpec, names: NameMap) -> Iterator[tuple[Node, str]]:
    """Each node with tensors and its name in the file; networks may have fewer dense layers at their end."""
    owners = _owners(spec)
    body = [node for node in owners if node.op != "dense"]
    ends = len(owners) - len(body), len(names.names) - len(body)
    if ends[1] < 0 or ends[0] > ends[1]:
        raise ModelFileError(f"it has {len(owners)} layers with weights, expected at most {len(names.names)}")
    yield from zip(body, names.names[: len(body)], strict=True)
    dense = owners[len(body) :]
    yield from zip(dense, names.names[len(names.names) - len(dense) :], strict=True)


def _take(
    node: Node, roles: Roles, wanted: Mapping[str, tuple[int, ...]], names: NameMap, tensors: dict[str, NDArray[Any]]
) -> None:
    """The tensors of one node; scales and shifts that the file leaves out are 1 and 0."""
    usual = {"scale": 1.0, "shift": 0.0, "bias": 0.0}
    for role, shape in wanted.items():
        values = roles.get(role)
        if values is None and role in usual:
            values = np.full(shape, usual[role], np.float32)
        if values is None or values.shape != shape:
            found = "nothing" if values is None else f"shape {values.shape}"
            raise ModelFileError(f"'{node.name}.{role}' needs shape {shape}, the file has {found}")
        if role == "running_var" and names.epsilon != node.attributes["epsilon"]:
            values = values + (names.epsilon - node.attributes["epsilon"])  # the sum of both is what counts
        tensors[f"{node.name}.{role}"] = values


def _absorb_biases(spec: ModelSpec, layers: Layers, names: NameMap, tensors: dict[str, NDArray[Any]]) -> None:
    """A bias before batch norm, where the network has none, moves the running mean by as much."""
    for node, name in _pairs(spec, names):
        bias = layers.get(name, {}).get("bias")
        if node.op != "conv2d" or node.attributes["bias"] or bias is None:
            continue
        consumers = spec.consumers[node.name]
        if len(consumers) != 1 or spec.node(consumers[0]).op != "batch_norm":
            raise ModelFileError(f"'{node.name}' has no bias, the file has one as '{name}'")
        mean = f"{consumers[0]}.running_mean"
        tensors[mean] = tensors[mean] - bias


def _channels_outermost(spec: ModelSpec, node: Node, weight: NDArray[Any]) -> NDArray[Any]:
    """A dense weight whose features are (row, column, channel) for features (channel, row, column)."""
    before = spec.node(node.inputs[0])
    if before.op != "flatten":
        return weight
    channels, height, width = spec.shapes[before.inputs[0]]
    if weight.shape[1] != channels * height * width:
        return weight
    return np.ascontiguousarray(
        weight.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(len(weight), -1)
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (f", … ({len(names)})" if len(names) > 4 else "")
