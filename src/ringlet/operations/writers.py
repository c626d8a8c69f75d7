"""What operations write themselves with: one writer for each framework that wants objects and not text.

The frameworks' modules are given by the engine or export that makes the writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.operations.attributes import Shape

if TYPE_CHECKING:
    from ringlet.operations.base import Layer

Value = Any
"""A symbolic tensor of Keras, or a node of an OpenVINO graph."""
Pads = tuple[tuple[int, int], tuple[int, int]]
"""(before, after) for rows and for columns."""
NO_PADS: Pads = ((0, 0), (0, 0))
SMALL = 16
"""Tensors with fewer elements stay float32 in a half-precision export."""


def per_channel(values: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """A number for each channel, with the axes of a batch of ``shape``, channels first."""
    return values.reshape(1, -1, *[1] * (len(shape) - 1))


# -- Keras ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Arrangement:
    """How Keras lays out a weight of the specs: taken as an array of ``shape``, with its axes in another order."""

    shape: Shape
    axes: tuple[int, ...]

    def apply(self, weight: Any, library: Any) -> Any:
        """The weight as Keras has it; ``library`` is ``numpy`` or ``keras.ops``."""
        return library.transpose(library.reshape(weight, self.shape), self.axes)


def plain_name(name: str) -> str:
    """A name that Keras takes: the slash is reserved."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


@final
class KerasWriter:
    """Writes one functional model, within :meth:`layout`.

    Images are (n, H, W, C), the only layout that TensorFlow has on processors, or (n, C, H, W), that of PyTorch.
    ``initializer`` of weights is for models that get theirs in another way. ``taken`` are names that no layer may have.
    """

    def __init__(
        self, keras: Any, dtype: str, *, channels_first: bool, initializer: str | None = None, taken: Iterable[str] = ()
    ) -> None:
        self.keras, self.channels_first = keras, channels_first
        self.dtype = "float32" if dtype == "bfloat16" else dtype
        """Of inputs and weights."""
        self.policy = "mixed_bfloat16" if dtype == "bfloat16" else dtype
        """Of layers."""
        self.axis = 1 if channels_first else -1
        """That of the channels."""
        self._initializer, self._names = initializer, set(taken)
        self.owners: dict[str, tuple[Any, Arrangement | None]] = {}
        """By the names of layers with tensors: the layer of Keras, and how it has its weight."""
        self.fed: list[Value] = []
        """Further inputs of the model, in order."""

    @contextmanager
    def layout(self) -> Iterator[None]:
        """Within: layers are made for this writer's layout of images, whatever Keras is set to."""
        config = self.keras.config
        usual = config.image_data_format()
        config.set_image_data_format("channels_first" if self.channels_first else "channels_last")
        try:
            yield
        finally:
            config.set_image_data_format(usual)

    def name(self, name: str) -> str:
        """A name that Keras takes and no other layer has."""
        plain = plain_name(name)
        while plain in self._names:
            plain += "_"
        self._names.add(plain)
        return plain

    def options(self, layer: Layer) -> dict[str, Any]:
        """Type and name: arguments of the layer of Keras that stands for ``layer``."""
        return {"dtype": self.policy, "name": self.name(layer.name)}

    def start(self, role: str = "kernel") -> dict[str, Any]:
        """The argument that says how a weight starts."""
        return {} if self._initializer is None else {f"{role}_initializer": self._initializer}

    def owned(self, layer: Layer, made: Any, arrangement: Arrangement | None, *inputs: Value) -> Value:
        """Apply a layer of Keras that has the tensors of ``layer``."""
        self.owners[layer.name] = made, arrangement
        return made(*inputs)

    def feed(self, shape: Sequence[int]) -> Value:
        """One more input of the model."""
        self.fed.append(self.keras.Input(tuple(shape), dtype=self.dtype))
        return self.fed[-1]

    def padded(self, value: Value, pads: Sequence[tuple[int, int]]) -> Value:
        """Zeros around images."""
        if all(pair == (0, 0) for pair in pads):
            return value
        return self.keras.layers.ZeroPadding2D(tuple(pads), dtype=self.policy)(value)


# -- ONNX -------------------------------------------------------------------------------------------------------------
@final
class OnnxWriter:
    """Collects the nodes and constants of a graph; ``onnx`` has ``helper`` and ``numpy_helper``.

    With ``half`` weights are stored in half precision and cast by the graph; runtimes do that once, when they load it.
    """

    def __init__(self, onnx: Any, *, half: bool) -> None:
        self.onnx, self._half = onnx, half
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node; gives ``output``, the name of its value."""
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, values: NDArray[Any], name: str) -> str:
        """Add a constant; gives the name of its value."""
        is_half = self._half and values.dtype == np.float32 and values.size >= SMALL
        stored = f"{name}.half" if is_half else name
        array = values.astype(np.float16) if is_half else values
        self.constants.append(self.onnx.numpy_helper.from_array(array, stored))
        return self.node("Cast", [stored], name, to=self.onnx.TensorProto.FLOAT) if is_half else stored

    def tensors(self, layer: Layer) -> list[str]:
        """The tensors of a layer as constants."""
        return [self.constant(values, f"{layer.name}.{role}") for role, values in layer.tensors.items()]

    def affine(self, source: str, constants: Mapping[str, NDArray[Any]], prefix: str, name: str) -> str:
        """``factor * x + offset`` with two constants, named by their roles."""
        factor, offset = (self.constant(values, f"{prefix}.{role}") for role, values in constants.items())
        return self.node("Add", [self.node("Mul", [source, factor], f"{prefix}.scaled"), offset], name)

    def clip(self, source: str, name: str, low: float, high: float, prefix: str) -> str:
        """Values cut to an interval; ``prefix`` names its ends."""
        ends = [
            self.constant(np.array(value, np.float32), f"{prefix}.{end}")
            for end, value in (("low", low), ("high", high))
        ]
        return self.node("Clip", [source, *ends], name)


# -- OpenVINO ---------------------------------------------------------------------------------------------------------
@final
class OpenVinoWriter:
    """``ops`` is a set of OpenVINO's operations."""

    def __init__(self, ops: Any) -> None:
        self.ops = ops

    def per_channel(self, values: NDArray[Any], shape: Shape) -> Value:
        """A constant with a number for each channel of values of ``shape``."""
        return self.ops.constant(per_channel(values, shape))
