"""Metrics of regression that are no means of samples, with the formulas of scikit-learn: a mean over outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.metrics.base import Array, Measure, Metric
from ringlet.metrics.formulas import dense_targets

Values = NDArray[np.float64]


def per_output(values: Array) -> Values:
    """The sum over samples ``(K,)`` of each output's value, a mean over its pixels."""
    pixels = values.reshape(*values.shape[:2], -1) if len(values) else values.reshape(0, values.shape[1], 1)
    return np.asarray(pixels.mean(axis=2, dtype=np.float64).sum(axis=0))


@final
class RootSquaredError(Metric):
    """The root of each output's mean squared error."""

    name: ClassVar[str] = "rmse"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"root_mean_squared_error": {}}
    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """One sum for each output."""

        def sums(outputs: Array, targets: Array) -> list[float]:
            return [*per_output((outputs.astype(np.float64) - dense_targets(outputs, targets)) ** 2)]

        def final(totals: Sequence[float], count: int) -> float:
            return float(np.sqrt(np.array(totals) / count).mean())

        return Measure(self.name, num_outputs, sums, final)


@final
class R2(Metric):
    """``1 - sum (y - p)² / sum (y - mean y)²`` of each output: the share of the variance that is explained.

    Of a constant target it is 1 if every prediction is right, else 0.
    """

    name: ClassVar[str] = "r2"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"r2_score": {}}
    higher_is_better: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """Three sums for each output: squared errors, targets and their squares."""

        def sums(outputs: Array, targets: Array) -> list[float]:
            wanted = dense_targets(outputs, targets)
            errors = outputs.astype(np.float64) - wanted
            return [float(value) for part in (errors**2, wanted, wanted**2) for value in per_output(part)]

        def final(totals: Sequence[float], count: int) -> float:
            errors, wanted, squares = np.array(totals).reshape(3, num_outputs)
            spread = squares - wanted**2 / count
            varies = spread > 1e-14 * np.maximum(squares, 1e-300)  # what is left of rounding is no variance
            explained = 1 - errors / np.where(varies, spread, 1)
            return float(np.where(varies, explained, errors == 0).mean())

        return Measure(self.name, 3 * num_outputs, sums, final)
