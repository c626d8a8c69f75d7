"""Random streams of a pass, and dropout's masks for engines that do not draw them themselves.

Keys are pure functions of (seed, step, shard, layer), so nothing depends on who computes what. Masks are those of the
native kernel, so all engines drop the same.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ringlet.kernels.contract import Floats, Kernels
from ringlet.models.spec import ModelSpec

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(value: int) -> int:
    """Steele, Lea and Flood's finaliser: a bijection of 64-bit numbers that scatters them."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix(key: int, value: int) -> int:
    """A new key from a key and a number."""
    return splitmix64(key ^ splitmix64(value & _MASK))


def step_key(seed: int, step: int, shard: int) -> int:
    """The key of one shard's step."""
    return mix(mix(mix(0, seed), step), shard)


def dropout_key(seed: int, step: int, shard: int, layer: int) -> int:
    """The key of one layer's mask; ``layer`` is the node's position in the spec."""
    return mix(step_key(seed, step, shard), layer)


@final
class DropoutMasks:
    """Draws the factors, zero or ``1 / (1 - rate)``, of every random node of a network."""

    def __init__(self, spec: ModelSpec, dtype: np.dtype[Any], kernels: Kernels) -> None:
        self.nodes = {index: node for index, node in enumerate(spec.nodes) if node.operation.is_random}
        """By their position in the spec, which names their random streams."""
        self._shapes = {index: spec.shapes[node.name] for index, node in self.nodes.items()}
        self._dtype, self._kernels = dtype, kernels

    def draw(self, key: int, num_samples: int) -> list[Floats]:
        """One array ``(num_samples, *shape)`` for each dropout node, for the pass with this key."""
        return [self._mask(index, mix(key, index), num_samples) for index in self.nodes]

    def ones(self) -> list[Floats]:
        """What leaves everything as it is: arrays ``(1, *shape)``."""
        return [np.ones((1, *shape), self._dtype) for shape in self._shapes.values()]

    def _mask(self, index: int, key: int, num_samples: int) -> Floats:
        """Dropout of ones, with the samples outermost."""
        shape, rate = self._shapes[index], self.nodes[index].attributes["rate"]
        factors = np.ones((*shape, num_samples), self._dtype)
        self._kernels.dropout(factors, factors, rate=rate, key=key, accumulate=False)
        mask = np.empty((num_samples, *shape), self._dtype)
        self._kernels.unpack(factors, mask)
        return mask
