"""Images whose pixels are looked up elsewhere in the same image: turned, zoomed, a window enlarged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.augmentation.base import Images
from ringlet.data.source import Indices


@dataclass(frozen=True)
class Warp:
    """The rows and columns ``(H, W)`` of an image that the pixels of the new one show; outside of it is zero."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]

    def nearest(self, image: NDArray[Any]) -> NDArray[Any]:
        """The new image ``(C, H, W)`` by the nearest pixel: no value appears that was not there."""
        return self._pick(image, np.floor(self.rows + 0.5), np.floor(self.columns + 0.5))

    def smooth(self, image: NDArray[Any]) -> NDArray[Any]:
        """The new image ``(C, H, W)``, bilinear; bytes are rounded."""
        top, left = np.floor(self.rows), np.floor(self.columns)
        down, right = (self.rows - top).astype(np.float32), (self.columns - left).astype(np.float32)
        values = image.astype(np.float32)
        result = self._pick(values, top, left) * ((1 - down) * (1 - right))
        result += self._pick(values, top, left + 1) * ((1 - down) * right)
        result += self._pick(values, top + 1, left) * (down * (1 - right))
        result += self._pick(values, top + 1, left + 1) * (down * right)
        rounded: NDArray[Any] = np.rint(result) if image.dtype.kind in "iu" else result
        return rounded.astype(image.dtype)

    @staticmethod
    def _pick(image: NDArray[Any], rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[Any]:
        height, width = image.shape[1:]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        places = np.where(inside, rows * width + columns, 0).astype(np.int64)
        found: NDArray[Any] = image.reshape(len(image), -1).take(places, axis=1)
        found *= inside.astype(image.dtype)
        return found


def rotation(size: tuple[int, ...], angle: float) -> Warp:
    """The turn of images of ``size`` (height, width) by ``angle`` in radians, counter-clockwise as they are shown."""
    height, width = size
    down = (np.arange(height) - (height - 1) / 2)[:, None]
    right = (np.arange(width) - (width - 1) / 2)[None, :]
    cosine, sine = np.cos(angle), np.sin(angle)
    rows = down * cosine + right * sine + (height - 1) / 2
    columns = right * cosine - down * sine + (width - 1) / 2
    return Warp(rows, columns)


def zoom(size: tuple[int, ...], factor: float) -> Warp:
    """Images of ``size`` (height, width) enlarged ``factor`` times about their centre."""
    rows, columns = ((np.arange(extent) - (extent - 1) / 2) / factor + (extent - 1) / 2 for extent in size)
    return Warp(*np.meshgrid(rows, columns, indexing="ij"))


def window(size: tuple[int, int], box: Sequence[int]) -> Warp:
    """A window (top, left, height, width) of an image enlarged to ``size``; as a resize does it."""
    top, left, height, width = box
    places = []
    for extent, start, length in zip(size, (top, left), (height, width), strict=True):
        inside = (np.arange(extent) + 0.5) * length / extent - 0.5
        places.append(start + np.clip(inside, 0, length - 1))
    return Warp(*np.meshgrid(*places, indexing="ij"))


def warped(images: Images, chosen: Indices, warp_of: Callable[[int], Warp]) -> Images:
    """The chosen images changed by a warp of their own: inputs bilinear, masks by the nearest pixel."""
    results = [values.copy() for values in images]
    for sample in chosen.tolist():
        warp = warp_of(sample)
        results[0][sample] = warp.smooth(images[0][sample])
        for result, values in zip(results[1:], images[1:], strict=True):
            result[sample] = warp.nearest(values[sample])
    return results
