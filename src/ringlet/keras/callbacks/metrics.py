"""Metrics of all ranks together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from ringlet.keras.collectives import allgather_object
from ringlet.keras.optimizer import process_set_of
from ringlet.named import ProcessSet


def average_metrics(
    metrics: Mapping[str, float],
    weights: float | Mapping[str, float] = 1.0,
    process_set: ProcessSet | None = None,
) -> dict[str, float]:
    """Metrics by name, averaged over the ranks that have them; for instance what ``evaluate(return_dict=True)`` gives.

    ``weights``: how much this rank counts, for all metrics or by name; best its number of samples. Every rank must
    call.
    """
    own = {name: float(value) for name, value in metrics.items()}
    counts = {name: float(weights if isinstance(weights, int | float) else weights.get(name, 1.0)) for name in own}
    pairs = {name: [value, counts[name]] for name, value in own.items()}
    everybody = allgather_object(pairs, process_set=process_set)
    return {name: _mean([ranks[name] for ranks in everybody if name in ranks]) for name in own}


def _mean(pairs: list[list[float]]) -> float:
    total = sum(weight for _, weight in pairs)
    if total == 0:
        return sum(value for value, _ in pairs) / len(pairs)
    return sum(value * weight for value, weight in pairs if weight) / total


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over ranks, so that all ranks see the same. Must precede those that use them.

    ``sample_weighted``: ranks count by the samples they have seen, so averages of samples (loss, accuracy) are those
    over all samples. Metrics that are no averages, such as AUC, are averaged over ranks all the same.
    """

    def __init__(self, device: str = "", *, sample_weighted: bool = False) -> None:  # noqa: ARG002
        super().__init__()
        self.sample_weighted = sample_weighted
        self._num_trained: float | None = None
        self._num_validated = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Nothing is counted yet."""
        self._num_trained = None
        self._num_validated = 0.0

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Validation forgets the counts of training."""
        self._num_trained = self._num_samples()

    def on_test_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Count the samples of the validation."""
        self._num_validated = self._num_samples()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Average, in place."""
        if logs is None:
            return
        num_trained = self._num_samples() if self._num_trained is None else self._num_trained
        numbers = {name: value for name, value in logs.items() if isinstance(value, int | float)}
        weights = {name: self._num_validated if name.startswith("val_") else num_trained for name in numbers}
        logs.update(average_metrics(numbers, weights if self.sample_weighted else 1.0, process_set_of(self.model)))

    def _num_samples(self) -> float:
        """Keras weighs the loss of a batch by its samples, and so counts them."""
        tracker = next((metric for metric in self.model.metrics if metric.name == "loss"), None)
        count = getattr(tracker, "count", None)
        return 0.0 if count is None else float(keras.ops.convert_to_numpy(count))
