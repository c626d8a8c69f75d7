"""Losses of values, for regression; classes become ones and zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from ringlet.component import option
from ringlet.kernels.reference.losses import ValueAndGradient, terms
from ringlet.losses.base import Array, PointwiseLoss


@final
class SquaredError(PointwiseLoss):
    """``(p - t)²`` of every output."""

    name: ClassVar[str] = "mse"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mean_squared_error": {}}

    def kernel(self, *, logits: bool) -> str | None:  # noqa: ARG002
        """Always."""
        return "mse"

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """As the kernel's."""
        return terms("mse", prediction, target)

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:  # noqa: ARG002
        """The same."""
        return ops.square(prediction - target)


@final
class AbsoluteError(PointwiseLoss):
    """``|p - t|`` of every output."""

    name: ClassVar[str] = "mae"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mean_absolute_error": {}, "l1": {}}

    def kernel(self, *, logits: bool) -> str | None:  # noqa: ARG002
        """Always."""
        return "mae"

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """As the kernel's."""
        return terms("mae", prediction, target)

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:  # noqa: ARG002
        """The same."""
        return ops.absolute(prediction - target)


@final
class Huber(PointwiseLoss):
    """``d² / 2`` of errors up to ``delta``, ``delta (|d| - delta / 2)`` of larger ones (Huber 1964)."""

    name: ClassVar[str] = "huber"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"smooth_l1": {}}
    delta: float = option(1.0, "errors beyond this count by their size, not its square", gt=0)

    def points(self, prediction: Array, target: Array, *, logits: bool) -> ValueAndGradient:  # noqa: ARG002
        """The gradient is the error, at most ``delta``."""
        error = prediction - target
        inside = np.minimum(np.abs(error), self.delta)
        return inside * (np.abs(error) - inside / 2), np.clip(error, -self.delta, self.delta)

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:  # noqa: ARG002
        """The same."""
        size = ops.absolute(prediction - target)
        inside = ops.minimum(size, self.delta)
        return inside * (size - inside / 2)
