"""A meter adds up loss and metrics over batches; its means weigh by samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from ringlet.engines.contract import StepOutput
from ringlet.training.metrics import MetricSet, MetricSum


class Meter:
    """Figures of an epoch or an evaluation: the metrics, then the loss."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._metrics = MetricSet(metrics)
        self._loss = MetricSum()

    def add(self, output: StepOutput, targets: NDArray[Any]) -> None:
        """Take the results of one batch."""
        self._metrics.update(output.outputs, targets)
        self._loss.add(output.loss_sum, output.count)

    def merge(self, other: Meter) -> None:
        """Take all that another meter has seen."""
        for name, total in self._metrics.sums.items():
            total.merge(other._metrics.sums[name])
        self._loss.merge(other._loss)

    def means(self, prefix: str = "") -> dict[str, float]:
        """The mean of each figure over all samples seen."""
        figures = {**self._metrics.means(), "loss": self._loss.mean}
        return {f"{prefix}{name}": value for name, value in figures.items()}

    @property
    def num_samples(self) -> int:
        """How many samples the meter has seen."""
        return self._loss.count
