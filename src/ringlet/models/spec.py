"""A network as data: an immutable, fully validated graph of named nodes.

One input node, one output node, every node used. Shapes, parameters, state and costs follow from the graph alone, so
a :class:`ModelSpec` that exists is a network that every engine can build.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

from ringlet.errors import SpecError, UnknownNameError, show
from ringlet.io import jsontext
from ringlet.operations import Layer, Operation, find_operation
from ringlet.operations.attributes import MAX_ELEMENTS, Shape
from ringlet.operations.base import STATE_ROLES, Role

__all__ = ["FORMAT", "ModelSpec", "Node", "ParameterInfo", "Shape", "check_name", "operation_of"]

FORMAT = 1
MAX_NODES = 50_000
MAX_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\Z")


@dataclass(frozen=True)
class Node:
    """One operation of the graph: what it is, where its inputs come from, and every attribute spelled out."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("node", self.name)
        try:
            self._check()
        except SpecError as error:
            raise SpecError(f"node '{self.name}': {error}") from None

    def _check(self) -> None:
        operation = self.operation
        if not isinstance(self.inputs, (list, tuple)) or not all(isinstance(name, str) for name in self.inputs):
            raise SpecError(f"inputs must be a list of node names, got {show(self.inputs)}")
        if not isinstance(self.attributes, Mapping):
            raise SpecError(f"attributes must be a mapping, got {show(self.attributes)}")
        operation.check_inputs(len(self.inputs))
        if len(set(self.inputs)) < len(self.inputs):
            raise SpecError(f"lists an input twice: {show(self.inputs)}")
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "attributes", MappingProxyType(operation.check_attributes(self.attributes)))

    def __deepcopy__(self, memo: object) -> Node:
        return self

    @cached_property
    def operation(self) -> Operation:
        """All that is known of its operation."""
        return operation_of(self.op)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts and scalars."""
        attributes = {key: list(value) if isinstance(value, tuple) else value for key, value in self.attributes.items()}
        return {"name": self.name, "op": self.op, "inputs": list(self.inputs), "attributes": attributes}


@dataclass(frozen=True)
class ParameterInfo:
    """A tensor of the network: a trainable parameter, or state such as running statistics."""

    name: str
    node: str
    role: Role
    shape: Shape
    initializer: str
    fan_in: int
    fan_out: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class ModelSpec:
    """A network. Construction validates everything; all other attributes are derived from ``name`` and ``nodes``.

    ``parameters`` are the trainable tensors in node order, weight before bias: the order of every flat buffer.
    ``flops`` has the forward cost of each node for one sample (see :mod:`ringlet.operations.base`);
    ``forward_flops`` is the sum over convolutions and dense layers, the usual figure; ``training_flops`` adds their
    weight gradients and those data gradients that are needed.
    """

    name: str
    nodes: tuple[Node, ...]
    input_shape: Shape = field(init=False, compare=False, repr=False)
    output_shape: Shape = field(init=False, compare=False, repr=False)
    shapes: Mapping[str, Shape] = field(init=False, compare=False, repr=False)
    consumers: Mapping[str, tuple[str, ...]] = field(init=False, compare=False, repr=False)
    parameters: tuple[ParameterInfo, ...] = field(init=False, compare=False, repr=False)
    state: tuple[ParameterInfo, ...] = field(init=False, compare=False, repr=False)
    num_parameters: int = field(init=False, compare=False, repr=False)
    flops: Mapping[str, int] = field(init=False, compare=False, repr=False)
    forward_flops: int = field(init=False, compare=False, repr=False)
    training_flops: int = field(init=False, compare=False, repr=False)
    _index: Mapping[str, Node] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_name("model", self.name)
        nodes = _checked_nodes(self.nodes)
        shapes = _infer_shapes(nodes)
        tensors = [info for node in nodes for info in _tensors(node, shapes)]
        parameters = tuple(info for info in tensors if info.role not in STATE_ROLES)
        flops = {node.name: _flops(node, shapes) for node in nodes}
        forward, training = _total_flops(nodes, flops, {info.node for info in parameters})
        derived: dict[str, Any] = {
            "nodes": nodes,
            "input_shape": shapes[nodes[0].name],
            "output_shape": shapes[nodes[-1].name],
            "shapes": MappingProxyType(shapes),
            "consumers": MappingProxyType(_consumers(nodes)),
            "parameters": parameters,
            "state": tuple(info for info in tensors if info.role in STATE_ROLES),
            "num_parameters": sum(info.size for info in parameters),
            "flops": MappingProxyType(flops),
            "forward_flops": forward,
            "training_flops": training,
            "_index": {node.name: node for node in nodes},
        }
        for key, value in derived.items():
            object.__setattr__(self, key, value)

    def __deepcopy__(self, memo: object) -> ModelSpec:
        return self

    def __hash__(self) -> int:
        return hash((self.name, len(self.nodes), self.num_parameters))

    def node(self, name: str) -> Node:
        """The node called ``name``."""
        if name not in self._index:
            raise UnknownNameError(f"node of model '{self.name}'", name, self._index)
        return self._index[name]

    def layer(self, node: Node, tensors: Mapping[str, Any], *, learns: bool = True) -> Layer:
        """A node with its ``tensors`` by role, as other frameworks want to know it."""
        sources = tuple(self.shapes[name] for name in node.inputs)
        return Layer(node.name, node.op, node.inputs, sources, self.shapes[node.name], node.attributes, tensors, learns)

    def frozen_nodes(self, frozen: Set[str]) -> frozenset[str]:
        """The nodes with parameters all of which are among ``frozen``, names of parameters."""
        learning = {info.node for info in self.parameters if info.name not in frozen}
        return frozenset(info.node for info in self.parameters) - learning

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts and scalars; :meth:`from_dict` gives the spec back."""
        return {"format": FORMAT, "name": self.name, "nodes": [node.to_dict() for node in self.nodes]}

    @classmethod
    def from_dict(cls, data: Any) -> ModelSpec:
        """The spec that :meth:`to_dict` described; anything else is a :class:`SpecError`."""
        _check_keys("model", data, ("format", "name", "nodes"))
        if data["format"] != FORMAT or isinstance(data["format"], (bool, float)):
            raise SpecError(f"model format is {show(data['format'])}, this version of Ringlet reads {FORMAT}")
        if not isinstance(data["nodes"], (list, tuple)):
            raise SpecError(f"nodes must be a list, got {show(data['nodes'])}")
        for node in data["nodes"]:
            _check_keys("node", node, ("name", "op", "inputs", "attributes"))
        return cls(data["name"], tuple(Node(**node) for node in data["nodes"]))

    def to_json(self) -> str:
        """Canonical JSON: equal specs give equal texts."""
        return jsontext.canonical(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """The spec in ``text``; hostile or damaged texts give :class:`SpecError`."""
        if not isinstance(text, str):
            raise SpecError(f"a model's JSON must be a text, got {type(text).__name__}")
        try:
            data = jsontext.parse(text)
        except ValueError as error:
            raise SpecError(f"not a model's JSON: {error}") from None
        return cls.from_dict(data)

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()


def check_name(kind: str, name: object) -> str:
    """Refuse names that could be mistaken for paths or break a file: letters, digits and ``_./-`` only, no ``..``."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.match(name) or ".." in name:
        raise SpecError(
            f"{kind} name {show(name)} is not allowed: use 1 to {MAX_NAME} letters, digits and _ . / - (no '..'), "
            "starting with a letter, a digit or _"
        )
    return name


def operation_of(name: object) -> Operation:
    """The operation called ``name``, or an error that suggests the nearest one."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.match(name):
        raise SpecError(f"op must be the name of an operation, got {show(name)}")
    try:
        return find_operation(name)
    except UnknownNameError as error:
        raise SpecError(str(error)) from None


def _check_keys(kind: str, data: Any, keys: Sequence[str]) -> None:
    if not isinstance(data, Mapping) or set(data) != set(keys):
        got = f"keys {show(list(data))}" if isinstance(data, Mapping) else show(data)
        raise SpecError(f"a {kind} must have exactly the keys {', '.join(keys)}; got {got}")


def _checked_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes in topological order with unique names, one input (the first), one output (the last), nothing unused."""
    if not isinstance(nodes, (list, tuple)) or not all(isinstance(node, Node) for node in nodes):
        raise SpecError(f"nodes must be a sequence of Node, got {show(nodes)}")
    if not 2 <= len(nodes) <= MAX_NODES:
        raise SpecError(f"a model has 2 to {MAX_NODES} nodes, got {len(nodes)}")
    if nodes[0].operation.max_inputs:
        raise SpecError(f"the first node must be the input, got '{nodes[0].name}' ({nodes[0].op})")
    names = {node.name for node in nodes}
    seen: set[str] = set()
    for position, node in enumerate(nodes):
        if node.name in seen:
            raise SpecError(f"node '{node.name}' is defined twice; names must be unique")
        if position and not node.operation.max_inputs:
            raise SpecError(f"node '{node.name}' is a second input; a model has exactly one")
        for name in node.inputs:
            if name not in seen:
                why = "comes later (a cycle?); list nodes before their users" if name in names else "does not exist"
                raise SpecError(f"node '{node.name}': its input {show(name)} {why}")
        seen.add(node.name)
    used = {name for node in nodes for name in node.inputs}
    unused = next((node.name for node in nodes[:-1] if node.name not in used), None)
    if unused is not None:
        raise SpecError(f"node '{unused}' is used by no one; only the last node, '{nodes[-1].name}', may be the output")
    return tuple(nodes)


def _infer_shapes(nodes: Sequence[Node]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for node in nodes:
        try:
            inputs = [shapes[name] for name in node.inputs]
            shapes[node.name] = node.operation.output_shape(node.attributes, inputs)
        except SpecError as error:
            raise SpecError(f"node '{node.name}': {error}") from None
    return shapes


def _tensors(node: Node, shapes: Mapping[str, Shape]) -> list[ParameterInfo]:
    rules = node.operation.tensors(node.attributes, [shapes[name] for name in node.inputs])
    infos = [
        ParameterInfo(
            f"{node.name}.{rule.role}", node.name, rule.role, rule.shape, rule.initializer, rule.fan_in, rule.fan_out
        )
        for rule in rules
    ]
    for info in infos:
        if info.size > MAX_ELEMENTS:
            raise SpecError(f"node '{node.name}': its {info.role} {info.shape} has more than {MAX_ELEMENTS:,} elements")
    return infos


def _flops(node: Node, shapes: Mapping[str, Shape]) -> int:
    return node.operation.flops(node.attributes, [shapes[name] for name in node.inputs], shapes[node.name])


def _total_flops(nodes: Sequence[Node], flops: Mapping[str, int], owners: Set[str]) -> tuple[int, int]:
    """Forward and training FLOPs of multiplying nodes; without parameters before it a node needs no data gradient."""
    forward = training = 0
    trained: set[str] = set()
    for node in nodes:
        needs_data_gradient = not trained.isdisjoint(node.inputs)
        if node.operation.multiplies:
            forward += flops[node.name]
            training += flops[node.name] * (3 if needs_data_gradient else 2)
        if needs_data_gradient or node.name in owners:
            trained.add(node.name)
    return forward, training


def _consumers(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    consumers: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for name in node.inputs:
            consumers[name].append(node.name)
    return {name: tuple(users) for name, users in consumers.items()}
