"""Dropout's masks for engines that do not draw them themselves: the native kernel's, so all engines drop the same."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ringlet.engines.contract import Floats
from ringlet.engines.keys import mix
from ringlet.kernels.contract import Kernels, padded_lanes
from ringlet.models.spec import ModelSpec


@final
class DropoutMasks:
    """Draws the factors, zero or ``1 / (1 - rate)``, of every dropout node of a network."""

    def __init__(self, spec: ModelSpec, dtype: np.dtype[Any], kernels: Kernels) -> None:
        self.nodes = {index: node for index, node in enumerate(spec.nodes) if node.op == "dropout"}
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
        factors = np.ones((*shape, padded_lanes(num_samples)), self._dtype)
        self._kernels.dropout(factors, factors, rate=rate, key=key, accumulate=False)
        mask = np.empty((num_samples, *shape), self._dtype)
        self._kernels.unpack(factors, mask)
        return mask
