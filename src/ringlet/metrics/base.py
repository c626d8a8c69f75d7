"""What a metric is: sums over samples, and the number made of them in the end.

A mean of means would weigh the last, smaller batch (or a rank with fewer samples) too much; an F1 score of F1 scores
would mean nothing. So batches, shards and ranks add up sums, and :attr:`Measure.final` comes last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from ringlet.component import Component, Registry
from ringlet.errors import ConfigError

Array = NDArray[Any]
METRICS: Registry[type[Metric]] = Registry("metric", package="ringlet.metrics", group="metrics")


@dataclass(frozen=True)
class Measure:
    """A metric ready to measure outputs of a known number for a known task."""

    name: str
    width: int
    """How many sums it needs."""
    sums: Callable[[Array, Array], Sequence[float]]
    """Of outputs ``(n, *shape)`` and targets: ``width`` numbers that add up over batches."""
    final: Callable[[Sequence[float], int], float]
    """The metric, from the sums over all samples and their number, which is not 0."""
    text: str = ""
    """The short text that names it with its options; empty: only this program knows it."""


class Metric(Component, ABC):
    """A metric by its name and options. The docstring begins with its line in help and documentation."""

    registry: ClassVar[Registry[Any] | None] = METRICS
    higher_is_better: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "segmentation", "regression")
    """What it can be reported for."""

    @abstractmethod
    def measure(self, task: str, num_outputs: int) -> Measure:
        """How to measure outputs for a task, which is one of ``tasks``."""


def measures(metrics: Iterable[str | Metric], task: str, num_outputs: int) -> tuple[Measure, ...]:
    """Metrics by name or as components, ready for a task; one that makes no sense for it is an error."""
    found = []
    for given in metrics:
        metric: Metric = METRICS.made(given)
        if task not in metric.tasks:
            fitting = [one.name for one in METRICS.entries() if task in one.tasks and one.name != "none"]
            raise ConfigError(
                f"metric '{metric.name}' does not fit {task}: it is for {' and '.join(metric.tasks)}. "
                f"Metrics for {task}: {', '.join(fitting)}"
            )
        text = "" if metric.registry is None else str(metric)
        found.append(replace(metric.measure(task, num_outputs), text=text))
    names = [measure.name for measure in found]
    if twice := [name for name in names if names.count(name) > 1 or name == "loss"]:
        raise ConfigError(f"metrics: '{twice[0]}' is a name that is taken: give each metric a name of its own")
    return tuple(found)
