"""Synthetic classification data of any shape: for trials of any network without any file.

Sample ``i`` is a pure function of (seed, i): its class is random, its values are a smooth pattern of that class plus
noise, as bytes. The patterns differ enough that a network learns them, and the noise is drawn from a pool, so making a
batch costs about as much as reading one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing
from ringlet.data.source import Indices, Samples, Task
from ringlet.errors import DataError

_LABEL_STREAM, _PATTERN_STREAM, _NOISE_STREAM, _OFFSET_STREAM = 10, 11, 12, 13
_NOISE_AMPLITUDE = 64
_MAX_PATTERN_BYTES = 64 << 20
_NUM_WINDOWS = 1 << 17


class SyntheticSource:
    """``num_samples`` images of ``input_shape``; sources of one seed but another ``first`` share the patterns."""

    task: Task = "classification"

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, num_samples: int, *, seed: int = 0, first: int = 0
    ) -> None:
        if not input_shape or min(input_shape) < 1 or num_classes < 1 or num_samples < 1:
            raise DataError(
                f"synthetic data of shape {input_shape}, {num_classes} classes, {num_samples} samples: "
                "expected positive numbers"
            )
        self.input_shape: tuple[int, ...] = tuple(input_shape)
        self.num_classes = num_classes
        self._num_samples, self._first = num_samples, first
        self._seed = seed
        self._num_values = math.prod(input_shape)
        self._patterns = _patterns(self._num_values, num_classes, seed)
        self._noise = _noise(self._num_values, seed)

    def __len__(self) -> int:
        return self._num_samples

    def read(self, indices: Indices) -> Samples:
        """Make the samples at ``indices``."""
        keys = indices + self._first
        labels = hashing.integers(hashing.stream(_LABEL_STREAM, self._seed), keys, self.num_classes)
        offsets = hashing.integers(hashing.stream(_OFFSET_STREAM, self._seed), keys, _NUM_WINDOWS).tolist()
        values = self._patterns.take(labels % len(self._patterns), axis=0)
        for row, offset in zip(values, offsets, strict=True):
            row += self._noise[offset : offset + self._num_values]
        return values.reshape(len(keys), *self.input_shape), labels


def _patterns(num_values: int, num_classes: int, seed: int) -> NDArray[np.uint8]:
    """One row of smooth bytes per class; below 64 MiB in total, after which classes share a pattern."""
    rows = max(1, min(num_classes, _MAX_PATTERN_BYTES // num_values))
    num_knots = min(num_values, 48)
    knots = hashing.uniform(hashing.stream(_PATTERN_STREAM, seed), np.arange(rows * num_knots)).reshape(rows, num_knots)
    positions = np.linspace(0, num_knots - 1, num_values)
    result = np.empty((rows, num_values), dtype=np.uint8)
    for row in range(rows):
        result[row] = np.interp(positions, np.arange(num_knots), knots[row]) * (255 - _NOISE_AMPLITUDE)
    return result


def _noise(num_values: int, seed: int) -> NDArray[np.uint8]:
    """A pool of bytes below the noise amplitude, of which each sample takes a window."""
    num_words = -(-(num_values + _NUM_WINDOWS) // 8)
    bits = hashing.words(hashing.stream(_NOISE_STREAM, seed), np.arange(num_words, dtype=np.uint64))
    return bits.view(np.uint8) % np.uint8(_NOISE_AMPLITUDE)
