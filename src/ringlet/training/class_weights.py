"""Factors of the losses of classes: as given, or balanced by how often each class occurs in the training data.

Balanced is scikit-learn's rule: ``n / (K n_c)`` for a class that has ``n_c`` of ``n`` samples (of masks: pixels), so
that the mean factor is 1. A label is two classes, 0 and 1, of its own. A class that never occurs has the factor 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import Dataset, Source
from ringlet.data.source import labels_of
from ringlet.engines.heads import check_class_weights
from ringlet.errors import ConfigError, UsageError

_CHUNK = 256


def make_class_weights(
    config: RunConfig, dataset: Dataset, num_outputs: int, comm: Communicator
) -> NDArray[np.float64] | None:
    """The factor of each class, if any were asked for; counting is shared, so every rank must call."""
    given = config.training.class_weights
    if given is None:
        return None
    if dataset.task == "regression":
        raise ConfigError("class_weights: regression has values, not classes: leave them out, or give sample weights")
    if isinstance(given, str):
        return balanced(count_targets(dataset, num_outputs, comm))
    weights = _by_name(given, dataset, num_outputs) if isinstance(given, Mapping) else np.array(given, np.float64)
    try:
        return check_class_weights(weights, (num_outputs,))
    except UsageError as error:
        raise ConfigError(f"class_weights: {error}") from None


def balanced(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """``n / (K n_c)`` along the last axis of counts ``(…, K)``."""
    totals, num_classes = counts.sum(axis=-1, keepdims=True), counts.shape[-1]
    return np.where(counts > 0, totals / (num_classes * np.maximum(counts, 1)), 0.0)


def count_targets(dataset: Dataset, num_outputs: int, comm: Communicator) -> NDArray[np.int64]:
    """How often each class occurs in the training data: ``(K,)``, of a single output ``(2,)``, of labels ``(K, 2)``."""
    labels = labels_of(dataset.train)
    if labels is not None:
        return np.bincount(labels, minlength=num_outputs)
    counts = np.zeros((num_outputs, 2) if _has_values(dataset) else num_outputs, np.int64)
    for start in range(comm.rank * _CHUNK, len(dataset.train), comm.size * _CHUNK):
        counts += _count(dataset.train, start, counts)
    counts = comm.allreduce(counts)
    return counts[0] if num_outputs == 1 and counts.ndim == 2 else counts


def _count(source: Source, start: int, like: NDArray[np.int64]) -> NDArray[np.int64]:
    targets = source.read(np.arange(start, min(start + _CHUNK, len(source)), dtype=np.int64))[1]
    if like.ndim == 1:
        return np.bincount(targets.ravel(), minlength=len(like))
    ones = (targets >= 0.5).sum(axis=(0, *range(2, targets.ndim)))
    return np.stack([targets.size // targets.shape[1] - ones, ones], axis=1)


def _has_values(dataset: Dataset) -> bool:
    return dataset.task == "multilabel" or (dataset.task == "segmentation" and dataset.num_classes == 1)


def _by_name(given: Mapping[str, float], dataset: Dataset, num_outputs: int) -> NDArray[np.float64]:
    """By the names of classes or their numbers; 1 for those that are not named."""
    names: list[Any] = list(dataset.class_names)
    size = 2 if num_outputs == 1 else num_outputs
    weights = np.ones(size, np.float64)
    for name, weight in given.items():
        place = names.index(name) if name in names else int(name) if name.isdecimal() else size
        if place >= size:
            known = ", ".join(names[:20]) or f"0 … {size - 1}"
            raise ConfigError(f"class_weights: there is no class '{name}'. Classes: {known}")
        weights[place] = weight
    return weights
