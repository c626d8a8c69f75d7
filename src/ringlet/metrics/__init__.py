"""Metrics: what is reported beside the loss, each a component with its options.

``base`` says what a metric is: sums over samples that add up exactly over batches, shards and ranks, and a last step
that makes a number of them. ``formulas`` has values per sample, ``means`` the metrics that are their means, ``counts``
and ``values`` those of several sums, ``functions`` makes one of a plain function.
"""

from __future__ import annotations

from ringlet.metrics.base import METRICS, Measure, Metric
from ringlet.metrics.functions import FunctionMetric, GivenMetrics, metric

__all__ = ["METRICS", "FunctionMetric", "GivenMetrics", "Measure", "Metric", "metric"]
