"""What all exports are written from: a network for inference, with its tensors, batch normalisation folded away.

Every target walks the same :class:`Network`, so what is true of one export (padding, rounding of folded weights, names)
is true of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.models import pooling
from ringlet.models.attributes import Shape
from ringlet.models.pooling import Pads

Floats = NDArray[np.float32]
SMALL = 16
"""Tensors with fewer elements stay float32 in a half-precision export."""


@dataclass(frozen=True)
class Layer:
    """One operation of the spec's table, or ``affine``: ``scale * x + shift`` per channel, a left-over batch norm."""

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: Shape
    """Of the output, without the batch."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Floats] = field(default_factory=dict)
    """``weight`` and ``bias``, or ``scale`` and ``shift``, in the canonical layout of the specs."""


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

    def shape(self, name: str) -> Shape:
        """The shape of a layer's output, or of the input."""
        return self._shapes[name]

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        return {self.input_name: self.input_shape, **{layer.name: layer.shape for layer in self.layers}}

    @property
    def num_values(self) -> int:
        """How many numbers all tensors hold."""
        return sum(tensor.size for layer in self.layers for tensor in layer.tensors.values())


def pool_pads(layer: Layer, source: Shape) -> Pads:
    """See :func:`ringlet.models.pooling.pool_pads`."""
    return pooling.pool_pads(layer.attributes, source, layer.shape)
