"""Resizing of sources that are arrays: bilinear for images, nearest for masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.source import Indices, Samples, Source, Task
from ringlet.errors import DataError


class ResizedSource:
    """Another source with its images brought to one height and width when they are read."""

    def __init__(self, source: Source, image_size: tuple[int, int]) -> None:
        if len(source.input_shape) != 3:
            raise DataError(f"cannot resize inputs of shape {source.input_shape}: expected images (C, H, W)")
        channels, height, width = source.input_shape
        self._source = source
        self._rows = bilinear_matrix(height, image_size[0])
        self._columns = bilinear_matrix(width, image_size[1])
        self._nearest = tuple(
            np.minimum((np.arange(new) + 0.5) * old / new, old - 1).astype(np.int64)
            for old, new in ((height, image_size[0]), (width, image_size[1]))
        )
        self.input_shape: tuple[int, ...] = (channels, *image_size)
        self.task: Task = source.task
        self.num_classes = source.num_classes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, indices: Indices) -> Samples:
        """Read and resize; bytes stay bytes."""
        inputs, targets = self._source.read(indices)
        resized = _resized(inputs, self._rows, self._columns)
        if targets.ndim >= 3:
            targets = targets[..., self._nearest[0][:, None], self._nearest[1]]
        return resized, targets


def resize_images(images: NDArray[Any], image_size: tuple[int, int]) -> NDArray[Any]:
    """Images ``(n, C, H, W)`` of any size brought to ``image_size`` just as a :class:`ResizedSource` does it."""
    rows, columns = (bilinear_matrix(*extents) for extents in zip(images.shape[2:], image_size, strict=True))
    return _resized(images, rows, columns)


def _resized(images: NDArray[Any], rows: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[Any]:
    resized: NDArray[Any] = rows @ images.astype(np.float32) @ columns.T
    return np.rint(resized).astype(np.uint8) if images.dtype == np.uint8 else resized


def bilinear_matrix(old: int, new: int) -> NDArray[np.float32]:
    """The (new, old) matrix of bilinear interpolation between pixel centres along one axis."""
    position = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(position.astype(np.int64), max(old - 2, 0))
    weight = position - low
    matrix = np.zeros((new, old), dtype=np.float32)
    rows = np.arange(new)
    matrix[rows, low] += (1 - weight).astype(np.float32)
    matrix[rows, np.minimum(low + 1, old - 1)] += weight.astype(np.float32)
    return matrix
