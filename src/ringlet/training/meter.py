"""A meter adds up loss and metrics over batches; its means weigh by samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
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
        if output.count:
            self._metrics.update(output.outputs, targets)
            self._loss.add(output.loss_sum, output.count)

    @property
    def totals(self) -> NDArray[np.float64]:
        """All sums and counts as one row: what ranks add up."""
        return np.concatenate([self._metrics.totals.ravel(), [self._loss.total, self._loss.count]])

    def add_totals(self, totals: NDArray[np.float64]) -> None:
        """Take what another meter has seen, by its totals."""
        pairs = totals.reshape(-1, 2).tolist()
        for own, (total, count) in zip((*self._metrics.sums.values(), self._loss), pairs, strict=True):
            own.add(total, int(count))

    def means(self, prefix: str = "") -> dict[str, float]:
        """The mean of each figure over all samples seen."""
        figures = {**self._metrics.means(), "loss": self._loss.mean}
        return {f"{prefix}{name}": value for name, value in figures.items()}

    @property
    def num_samples(self) -> int:
        """How many samples the meter has seen."""
        return self._loss.count
