"""A meter adds up loss and metrics over batches; its means weigh by samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ringlet.training.metrics import MetricSum, canonical_name


class Meter:
    """Figures of an epoch or an evaluation: the metrics, then the loss."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._sums = {name: MetricSum() for name in (*map(canonical_name, metrics), "loss")}

    @property
    def totals(self) -> list[float]:
        """The sum and the number of samples of each figure: what ranks add up (counts are exact up to 2^53)."""
        return [value for own in self._sums.values() for value in (own.total, float(own.count))]

    def add_totals(self, totals: Sequence[float]) -> None:
        """Take what another meter has seen, by its totals."""
        for own, total, count in zip(self._sums.values(), totals[::2], totals[1::2], strict=True):
            own.add(total, count)

    def means(self, prefix: str = "") -> dict[str, float]:
        """The mean of each figure over all samples seen."""
        return {prefix + name: own.mean for name, own in self._sums.items()}

    @property
    def num_samples(self) -> int:
        """How many samples the meter has seen."""
        return self._sums["loss"].count
