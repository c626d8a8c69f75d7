"""Random changes of training images, each a pure function of (seed, epoch, sample index).

So a sample looks the same in a given epoch whichever rank reads it, in whichever batch and thread. Masks go through the
same geometry as their images. Validation and test loaders are given no augmentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing
from ringlet.data.source import Indices, Samples
from ringlet.errors import ConfigError

_STREAM = 3
_FLIP, _CROP_CHANCE, _TOP, _LEFT, _NEW_TOP, _NEW_LEFT, _SHIFT_CHANCE, _DOWN, _RIGHT, _ROTATE_CHANCE, _ANGLE = range(11)
_JITTER_CHANCE, _CONTRAST, _LIGHT = range(11, 14)  # and one more for the light of every further channel


@dataclass(frozen=True)
class Augmentation:
    """What may happen to an image, in this order.

    *jitter*: with ``jitter_probability`` change the light: contrast by a factor of up to ``1 ± jitter_strength``, and
    the brightness of each channel, for itself, by up to ``jitter_strength`` times its spread. Masks stay.
    *flip*: mirror left and right, with ``flip_probability``.
    *rotate*: with ``rotate_probability`` turn about the centre by up to ``rotate_degrees`` either way, zeros at the
    corners; images bilinear, masks by the nearest pixel.
    *crop*: with ``crop_probability`` keep a random square window of ``crop_size`` pixels, put it at a random place
    and fill the rest with zeros (black).
    *shift*: with ``shift_probability`` move the image by up to ``shift_size`` pixels each way, zeros at the edge;
    the same as padding by ``shift_size`` and cropping back.
    """

    flip_probability: float = 0.0
    crop_size: int = 0
    crop_probability: float = 0.0
    shift_size: int = 0
    shift_probability: float = 1.0
    rotate_degrees: float = 0.0
    rotate_probability: float = 1.0
    jitter_strength: float = 0.0
    jitter_probability: float = 1.0

    def __post_init__(self) -> None:
        """Refuse probabilities outside [0, 1], negative sizes and more than half a turn."""
        for name in (f"{kind}_probability" for kind in ("flip", "crop", "shift", "rotate", "jitter")):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected a number from 0 to 1")
        for name in ("crop_size", "shift_size"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected 0 (off) or a number of pixels")
        if self.crop_probability > 0.0 and self.crop_size == 0:
            raise ConfigError(f"crop_probability = {self.crop_probability} but crop_size = 0: give a window in pixels")
        if not 0.0 <= self.jitter_strength <= 1.0:
            raise ConfigError(f"jitter_strength = {self.jitter_strength}: expected 0 (off) to 1")
        if not 0.0 <= self.rotate_degrees <= 180.0:
            raise ConfigError(f"rotate_degrees = {self.rotate_degrees}: expected 0 (off) to 180 degrees")

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not images, or too small for the window."""
        if len(input_shape) != 3:
            raise ConfigError(f"cannot flip, move or turn inputs of shape {input_shape}: expected images (C, H, W)")
        height, width = input_shape[1:]
        if self.crop_probability and self.crop_size > min(height, width):
            raise ConfigError(f"crop_size = {self.crop_size} does not fit {height}x{width} images: choose it smaller")
        if self.shift_size >= min(height, width):
            raise ConfigError(f"shift_size = {self.shift_size} would move {height}x{width} images out of sight")

    def apply(self, samples: Samples, indices: Indices, seed: int, epoch: int) -> Samples:
        """The changed samples; ``samples`` is ``(inputs, targets)`` as read, and may be changed in place."""
        inputs, targets = samples
        draw = _Draw(hashing.stream(_STREAM, seed, epoch), indices)
        images = [np.require(values, requirements=["W"]) for values in (inputs, *_masks(targets, inputs))]
        images[0] = self._jitter(images[0], draw)
        self._flip(images, draw)
        images = self._rotate(images, draw)
        images = self._crop(images, draw)
        images = self._shift(images, draw)
        return images[0], images[1].reshape(targets.shape) if len(images) == 2 else targets

    def _jitter(self, inputs: NDArray[Any], draw: _Draw) -> NDArray[Any]:
        if self.jitter_strength == 0.0:
            return inputs
        chosen = draw.chosen(_JITTER_CHANCE, self.jitter_probability)
        kinds = (_CONTRAST, *(_LIGHT + channel for channel in range(inputs.shape[1])))
        amounts = np.stack([(2.0 * draw.uniform(kind) - 1.0)[chosen] for kind in kinds], axis=1)
        result = inputs.copy()
        for sample, amount in zip(chosen.tolist(), (amounts * self.jitter_strength).astype(np.float32), strict=True):
            values = inputs[sample].astype(np.float32)
            mean, spread = (f(values, axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
            changed = mean + (values - mean) * (1 + amount[0]) + spread * amount[1:, None, None]
            result[sample] = np.rint(np.clip(changed, 0, 255)) if inputs.dtype == np.uint8 else changed
        return result

    def _flip(self, images: list[NDArray[Any]], draw: _Draw) -> None:
        chosen = draw.chosen(_FLIP, self.flip_probability)
        for values in images:
            if len(chosen):
                values[chosen] = values[chosen, :, :, ::-1]

    def _rotate(self, images: list[NDArray[Any]], draw: _Draw) -> list[NDArray[Any]]:
        if self.rotate_degrees == 0.0:
            return images
        chosen = draw.chosen(_ROTATE_CHANCE, self.rotate_probability)
        angles = np.deg2rad((2.0 * draw.uniform(_ANGLE) - 1.0) * self.rotate_degrees)
        results = [values.copy() for values in images]
        for sample in chosen.tolist():
            view = rotation(images[0].shape[2:], float(angles[sample]))
            results[0][sample] = view.smooth(images[0][sample])
            for result, values in zip(results[1:], images[1:], strict=True):
                result[sample] = view.nearest(values[sample])
        return results

    def _crop(self, images: list[NDArray[Any]], draw: _Draw) -> list[NDArray[Any]]:
        if self.crop_probability == 0.0:
            return images
        chosen, size = draw.chosen(_CROP_CHANCE, self.crop_probability), self.crop_size
        height, width = images[0].shape[2:]
        tops, new_tops = (draw.integers(kind, height - size + 1) for kind in (_TOP, _NEW_TOP))
        lefts, new_lefts = (draw.integers(kind, width - size + 1) for kind in (_LEFT, _NEW_LEFT))
        extents = np.full(len(tops), size)
        return [_paste(values, chosen, (tops, lefts), (new_tops, new_lefts), (extents, extents)) for values in images]

    def _shift(self, images: list[NDArray[Any]], draw: _Draw) -> list[NDArray[Any]]:
        if self.shift_size == 0:
            return images
        chosen = draw.chosen(_SHIFT_CHANCE, self.shift_probability)
        height, width = images[0].shape[2:]
        down, right = (draw.integers(kind, 2 * self.shift_size + 1) - self.shift_size for kind in (_DOWN, _RIGHT))
        old = (np.maximum(-down, 0), np.maximum(-right, 0))
        new = (np.maximum(down, 0), np.maximum(right, 0))
        extents = (height - np.abs(down), width - np.abs(right))
        return [_paste(values, chosen, old, new, extents) for values in images]


class _Draw:
    """Random numbers of one batch: one per sample and kind, keyed by the sample's index."""

    def __init__(self, stream_key: int, indices: Indices) -> None:
        self._stream = stream_key
        self._indices = indices

    def chosen(self, kind: int, probability: float) -> Indices:
        if probability <= 0.0:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.uniform(kind) < probability)

    def uniform(self, kind: int) -> NDArray[np.float64]:
        return hashing.uniform(hashing.stream(self._stream, kind), self._indices)

    def integers(self, kind: int, limit: int) -> Indices:
        return hashing.integers(hashing.stream(self._stream, kind), self._indices, limit)


def _masks(targets: NDArray[Any], inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The targets as images ``(n, 1, H, W)`` if they are masks or classes of pixels; nothing otherwise."""
    if inputs.ndim != 4 or targets.ndim < 3:
        return []
    return [targets[:, None] if targets.ndim == 3 else targets]


def _paste(
    values: NDArray[Any],
    chosen: Indices,
    old: tuple[Indices, Indices],
    new: tuple[Indices, Indices],
    extents: tuple[Indices, Indices],
) -> NDArray[Any]:
    """Move the window at ``old`` of each chosen image to ``new``; everything around it becomes zero."""
    if not len(chosen):
        return values
    result = values.copy()
    result[chosen] = 0
    corners = np.stack([*old, *new, *extents], axis=1)[chosen].tolist()
    for sample, (top, left, new_top, new_left, height, width) in zip(chosen.tolist(), corners, strict=True):
        window = values[sample, :, top : top + height, left : left + width]
        result[sample, :, new_top : new_top + height, new_left : new_left + width] = window
    return result


# -- rotation about the centre ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rotation:
    """The rows and columns ``(H, W)`` of an image that the pixels of the turned one show; outside of it is zero."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]

    def nearest(self, image: NDArray[Any]) -> NDArray[Any]:
        """The turned image ``(C, H, W)`` by the nearest pixel: no value appears that was not there."""
        return self._pick(image, np.floor(self.rows + 0.5), np.floor(self.columns + 0.5))

    def smooth(self, image: NDArray[Any]) -> NDArray[Any]:
        """The turned image ``(C, H, W)``, bilinear; bytes are rounded."""
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


def rotation(size: tuple[int, ...], angle: float) -> Rotation:
    """The turn of images of ``size`` (height, width) by ``angle`` in radians, counter-clockwise as they are shown."""
    height, width = size
    down = (np.arange(height) - (height - 1) / 2)[:, None]
    right = (np.arange(width) - (width - 1) / 2)[None, :]
    cosine, sine = np.cos(angle), np.sin(angle)
    rows = down * cosine + right * sine + (height - 1) / 2
    columns = right * cosine - down * sine + (width - 1) / 2
    return Rotation(rows, columns)
