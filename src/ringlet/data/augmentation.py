"""Random changes of training images, each a pure function of (seed, epoch, sample index).

So a sample looks the same in a given epoch whichever rank reads it, in whichever batch and thread. Masks go through the
same geometry as their images. Validation and test loaders are given no augmentation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import Component, Registry, option
from ringlet.data import hashing
from ringlet.data.source import Indices, Samples
from ringlet.errors import ConfigError

_STREAM = 3
_FLIP, _CROP_CHANCE, _TOP, _LEFT, _NEW_TOP, _NEW_LEFT, _SHIFT_CHANCE, _DOWN, _RIGHT, _ROTATE_CHANCE, _ANGLE = range(11)
_JITTER_CHANCE, _CONTRAST, _LIGHT = range(11, 14)  # and one more for the light of every further channel

Images = list[NDArray[Any]]
"""The inputs ``(n, C, H, W)`` of a batch, and its masks where there are any."""
AUGMENTATIONS: Registry[type[Transform]] = Registry(
    "augmentation", package="ringlet.data.augmentation", group="augmentations"
)


class Draw:
    """Random numbers of one batch: one per sample and kind, keyed by the sample's index.

    ``kind`` is any number that is used for nothing else; those below 1,000 belong to Ringlet.
    """

    def __init__(self, stream_key: int, indices: Indices) -> None:
        self._stream = stream_key
        self._indices = indices

    def chosen(self, kind: int, probability: float) -> Indices:
        """The places in the batch of the samples that are changed."""
        if probability <= 0.0:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.uniform(kind) < probability)

    def uniform(self, kind: int) -> NDArray[np.float64]:
        """A number in [0, 1) for every sample."""
        return hashing.uniform(hashing.stream(self._stream, kind), self._indices)

    def integers(self, kind: int, limit: int) -> Indices:
        """A whole number from 0 to ``limit - 1`` for every sample."""
        return hashing.integers(hashing.stream(self._stream, kind), self._indices, limit)


class Transform(Component, ABC):
    """One kind of change."""

    registry: ClassVar[Registry[Any] | None] = AUGMENTATIONS
    order: ClassVar[int] = 100
    """Transforms apply by this number, the lowest first."""
    probability: float = option(0.5, "share of the images that are changed", ge=0, le=1)

    def check_shape(self, height: int, width: int) -> None:
        """Refuse images that are too small."""

    @abstractmethod
    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images; those given may be changed in place."""


@final
class Jitter(Transform):
    """Change contrast and brightness: contrast by a factor of up to ``1 ± strength``, and the brightness of each
    channel, for itself, by up to ``strength`` times its spread. Masks stay.
    """

    name: ClassVar[str] = "jitter"
    order: ClassVar[int] = 10
    strength: float = option(0.3, "share by which contrast and brightness change at most", gt=0, le=1)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images."""
        inputs = images[0]
        chosen = draw.chosen(_JITTER_CHANCE, self.probability)
        kinds = (_CONTRAST, *(_LIGHT + channel for channel in range(inputs.shape[1])))
        amounts = np.stack([(2.0 * draw.uniform(kind) - 1.0)[chosen] for kind in kinds], axis=1)
        result = inputs.copy()
        for sample, amount in zip(chosen.tolist(), (amounts * self.strength).astype(np.float32), strict=True):
            values = inputs[sample].astype(np.float32)
            mean, spread = (f(values, axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
            changed = mean + (values - mean) * (1 + amount[0]) + spread * amount[1:, None, None]
            result[sample] = np.rint(np.clip(changed, 0, 255)) if inputs.dtype == np.uint8 else changed
        return [result, *images[1:]]


@final
class Flip(Transform):
    """Mirror left and right."""

    name: ClassVar[str] = "flip"
    order: ClassVar[int] = 20

    def apply(self, images: Images, draw: Draw) -> Images:
        """The mirrored images."""
        chosen = draw.chosen(_FLIP, self.probability)
        for values in images:
            if len(chosen):
                values[chosen] = values[chosen, :, :, ::-1]
        return images


@final
class Rotate(Transform):
    """Turn about the centre, zeros at the corners; images bilinear, masks by the nearest pixel."""

    name: ClassVar[str] = "rotate"
    order: ClassVar[int] = 30
    degrees: float = option(10.0, "degrees by which an image turns at most, either way", unit="degrees", gt=0, le=180)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The turned images."""
        chosen = draw.chosen(_ROTATE_CHANCE, self.probability)
        angles = np.deg2rad((2.0 * draw.uniform(_ANGLE) - 1.0) * self.degrees)
        results = [values.copy() for values in images]
        for sample in chosen.tolist():
            view = rotation(images[0].shape[2:], float(angles[sample]))
            results[0][sample] = view.smooth(images[0][sample])
            for result, values in zip(results[1:], images[1:], strict=True):
                result[sample] = view.nearest(values[sample])
        return results


@final
class Crop(Transform):
    """Keep a random square window, put it at a random place and fill the rest with zeros (black)."""

    name: ClassVar[str] = "crop"
    order: ClassVar[int] = 40
    size: int = option(16, "edge of the window", unit="pixels", ge=1)

    def check_shape(self, height: int, width: int) -> None:
        """Refuse images that are smaller than the window."""
        if self.size > min(height, width):
            raise ConfigError(
                f"augmentation crop: size = {self.size} does not fit {height}x{width} images: choose it smaller"
            )

    def apply(self, images: Images, draw: Draw) -> Images:
        """The cropped images."""
        chosen, size = draw.chosen(_CROP_CHANCE, self.probability), self.size
        height, width = images[0].shape[2:]
        tops, new_tops = (draw.integers(kind, height - size + 1) for kind in (_TOP, _NEW_TOP))
        lefts, new_lefts = (draw.integers(kind, width - size + 1) for kind in (_LEFT, _NEW_LEFT))
        extents = np.full(len(tops), size)
        return [_paste(values, chosen, (tops, lefts), (new_tops, new_lefts), (extents, extents)) for values in images]


@final
class Shift(Transform):
    """Move the image, zeros at the edge; the same as padding by ``size`` and cropping back."""

    name: ClassVar[str] = "shift"
    order: ClassVar[int] = 50
    size: int = option(4, "pixels by which an image moves at most, each way", unit="pixels", ge=1)

    def check_shape(self, height: int, width: int) -> None:
        """Refuse images that would leave the picture."""
        if self.size >= min(height, width):
            raise ConfigError(f"augmentation shift: size = {self.size} would move {height}x{width} images out of sight")

    def apply(self, images: Images, draw: Draw) -> Images:
        """The moved images."""
        chosen = draw.chosen(_SHIFT_CHANCE, self.probability)
        height, width = images[0].shape[2:]
        down, right = (draw.integers(kind, 2 * self.size + 1) - self.size for kind in (_DOWN, _RIGHT))
        old = (np.maximum(-down, 0), np.maximum(-right, 0))
        new = (np.maximum(down, 0), np.maximum(right, 0))
        extents = (height - np.abs(down), width - np.abs(right))
        return [_paste(values, chosen, old, new, extents) for values in images]


@final
class Augmentation:
    """What may happen to an image: its transforms, in their order."""

    def __init__(self, transforms: Iterable[Transform]) -> None:
        self.transforms = tuple(sorted(transforms, key=lambda transform: transform.order))

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not images, or too small."""
        if len(input_shape) != 3:
            raise ConfigError(f"cannot flip, move or turn inputs of shape {input_shape}: expected images (C, H, W)")
        for transform in self.transforms:
            transform.check_shape(*input_shape[1:])

    def apply(self, samples: Samples, indices: Indices, seed: int, epoch: int) -> Samples:
        """The changed samples; ``samples`` is ``(inputs, targets)`` as read, and may be changed in place."""
        inputs, targets = samples
        draw = Draw(hashing.stream(_STREAM, seed, epoch), indices)
        images = [np.require(values, requirements=["W"]) for values in (inputs, *_masks(targets, inputs))]
        for transform in self.transforms:
            images = transform.apply(images, draw)
        return images[0], images[1].reshape(targets.shape) if len(images) == 2 else targets


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
