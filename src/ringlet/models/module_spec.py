"""A network that a program brings as an object, a PyTorch module or a Keras model: what must be known of it.

Its code stays with the program. What a run needs besides is here: shapes, what its outputs mean, and its tensors, each
of one kind. A :class:`ModuleSpec` is kept in checkpoints, and a run that resumes compares it with that of its own
module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal, Protocol, get_args

import numpy as np

from ringlet.errors import SpecError, show
from ringlet.io import jsontext
from ringlet.io.safetensors import NAMES
from ringlet.models.spec import ModelSpec, ParameterInfo
from ringlet.operations.attributes import Shape, is_integer
from ringlet.operations.base import Role

FORMAT = 1
Framework = Literal["torch", "keras"]
Activation = Literal["softmax", "sigmoid", "identity"]
"""What makes probabilities (or values) of the outputs of a module."""
Kind = Literal["parameter", "state", "count", "constant"]
"""``parameter``: learned. ``state``: floating numbers that a training pass changes, such as running statistics.
``count``: whole numbers that it changes. ``constant``: never changed, such as frozen weights."""
_KEYS = {"format", "framework", "name", "input_shape", "output_shape", "activation", "tensors"}


class Network(Protocol):
    """What a :class:`~ringlet.models.spec.ModelSpec` and a :class:`ModuleSpec` have in common.

    Sessions, strategies, checkpoints and the check of memory need no more of a network than this.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def input_shape(self) -> Shape:
        """Of one sample, channels first."""

    @property
    def output_shape(self) -> Shape:
        """Of one sample, channels first."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of all values that a training pass keeps, as far as they are known."""

    @property
    def parameters(self) -> tuple[ParameterInfo, ...]:
        """What is learned, in the order of every flat buffer."""

    @property
    def state(self) -> tuple[ParameterInfo, ...]:
        """What training passes change beside it."""

    @property
    def num_parameters(self) -> int:
        """Numbers in all parameters."""

    def to_json(self) -> str:
        """Canonical JSON: equal networks give equal texts."""

    def fingerprint(self) -> str:
        """SHA-256 of it."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a module by the module's own name for it; ``dtype`` is NumPy's name."""

    name: str
    shape: Shape
    dtype: str
    kind: Kind

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def info(self) -> ParameterInfo:
        """As strategies and optimizers know tensors: by the layer that owns it and its role there."""
        owner, _, leaf = self.name.replace("/", ".").rpartition(".")
        return ParameterInfo(self.name, owner or self.name, _role(leaf, self.shape), self.shape, "given", 1, 1)


@dataclass(frozen=True)
class ModuleSpec:
    """A module as data. ``module`` is the object itself, where there is one: not in files."""

    name: str
    framework: Framework
    input_shape: Shape
    output_shape: Shape
    activation: Activation
    tensors: tuple[TensorInfo, ...]
    num_activations: int = field(default=0, compare=False)
    """Numbers that a training pass keeps for each sample; 0: not known."""
    module: Any = field(default=None, compare=False, repr=False)

    @cached_property
    def parameters(self) -> tuple[ParameterInfo, ...]:
        """What is learned."""
        return tuple(tensor.info() for tensor in self.tensors if tensor.kind == "parameter")

    @cached_property
    def state(self) -> tuple[ParameterInfo, ...]:
        """What training passes change: floating numbers, then counts."""
        return tuple(tensor.info() for kind in ("state", "count") for tensor in self.tensors if tensor.kind == kind)

    @cached_property
    def kept(self) -> tuple[TensorInfo, ...]:
        """Counts and constants: no floating numbers could hold them."""
        return tuple(tensor for tensor in self.tensors if tensor.kind in ("count", "constant"))

    @cached_property
    def num_parameters(self) -> int:
        """Numbers in all parameters."""
        return sum(info.size for info in self.parameters)

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of inputs and outputs, and all else that a pass keeps as one row."""
        return {"inputs": self.input_shape, "kept": (self.num_activations,), "outputs": self.output_shape}

    def to_json(self) -> str:
        """Canonical JSON, without the module and without estimates."""
        plain = {
            "format": FORMAT,
            "framework": self.framework,
            "name": self.name,
            "input_shape": list(self.input_shape),
            "output_shape": list(self.output_shape),
            "activation": self.activation,
            "tensors": [[tensor.name, list(tensor.shape), tensor.dtype, tensor.kind] for tensor in self.tensors],
        }
        return jsontext.canonical(plain)

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    @classmethod
    def from_dict(cls, data: Any) -> ModuleSpec:
        """The inverse of :meth:`to_json`, of plain values that are not trusted."""
        if not isinstance(data, dict) or set(data) != _KEYS or data["format"] != FORMAT:
            raise SpecError(f"not the description of a module: {show(data)}")
        if data["framework"] not in get_args(Framework) or data["activation"] not in get_args(Activation):
            raise SpecError(f"a module of {show(data['framework'])} with {show(data['activation'])}")
        if not isinstance(data["name"], str) or not isinstance(data["tensors"], list):
            raise SpecError(f"not the description of a module: {show(data['name'])}")
        tensors = tuple(_tensor(entry) for entry in data["tensors"])
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise SpecError(f"module {show(data['name'])} lists a tensor twice")
        shapes = _shape(data["input_shape"]), _shape(data["output_shape"])
        return cls(data["name"], data["framework"], *shapes, data["activation"], tensors)


def network_from_json(text: str) -> ModelSpec | ModuleSpec:
    """The network in a file's text, a graph or the description of a module; anything else is a :class:`SpecError`."""
    try:
        data = jsontext.parse(text)
    except ValueError as error:
        raise SpecError(f"not a model's JSON: {error}") from None
    if isinstance(data, dict) and "framework" in data:
        return ModuleSpec.from_dict(data)
    return ModelSpec.from_dict(data)


def _tensor(entry: Any) -> TensorInfo:
    if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], str) or not entry[0]:
        raise SpecError(f"not the description of a tensor: {show(entry)}")
    name, shape, dtype, kind = entry
    if kind not in get_args(Kind) or dtype not in {str(known) for known in NAMES}:
        raise SpecError(f"tensor {show(name)} is of {show(dtype)}, {show(kind)}")
    return TensorInfo(name, _shape(shape), dtype, kind)


def _shape(value: Any) -> Shape:
    if not isinstance(value, list) or not all(is_integer(extent) and 0 <= extent < 1 << 40 for extent in value):
        raise SpecError(f"{show(value)} is not a shape")
    return tuple(value)


def _role(leaf: str, shape: Shape) -> Role:
    """Optimizers that treat weights in a way of their own (LARS) must know which these are."""
    if len(shape) > 1:
        return "weight"
    return "bias" if leaf in ("bias", "beta") else "scale"


def dtype_name(dtype: Any) -> str:
    """NumPy's name of a type of elements that files can hold; empty for others."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        return ""
    return str(found) if found in NAMES else ""
