"""Decoded files that are kept in memory, where a whole part of a data set fits: every later epoch reads from there."""

from __future__ import annotations

import threading
from typing import final

import numpy as np

from ringlet.data.source import Indices, Samples, Source, Task

MAX_BYTES = 128 << 20
"""More than this is not kept: decoding again costs less than memory that others need."""


@final
class RememberedSource:
    """Another source whose samples are read once each. Thread-safe: at worst a sample is read twice."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._known = np.zeros(len(source), dtype=bool)
        self._kept: Samples | None = None
        self.input_shape: tuple[int, ...] = source.input_shape
        self.task: Task = source.task
        self.num_classes = source.num_classes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, indices: Indices) -> Samples:
        """Read what is not known yet, then copy from memory."""
        missing = np.unique(indices[~self._known[indices]])
        kept = self._kept
        if len(missing) or kept is None:
            kept = self._keep(missing, self._source.read(missing))
        inputs, targets = kept
        return inputs[indices], targets[indices]

    def _keep(self, indices: Indices, samples: Samples) -> Samples:
        with self._lock:
            if self._kept is None:
                inputs, targets = (np.empty((len(self), *part.shape[1:]), part.dtype) for part in samples)
                self._kept = inputs, targets
            for kept, part in zip(self._kept, samples, strict=True):
                kept[indices] = part
            self._known[indices] = True
            return self._kept


def remembered(source: Source, bytes_per_sample: int, max_bytes: int = MAX_BYTES) -> Source:
    """``source`` with a memory if all of its samples fit into ``max_bytes``."""
    return RememberedSource(source) if len(source) * bytes_per_sample <= max_bytes else source
