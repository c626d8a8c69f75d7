"""Changes that move pixels; masks move with their images."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import option
from ringlet.data.augmentation.base import Draw, Images, Transform
from ringlet.data.augmentation.warp import rotation, warped, window, zoom
from ringlet.data.source import Indices
from ringlet.errors import ConfigError

_FLIP, _CROP_CHANCE, _TOP, _LEFT, _NEW_TOP, _NEW_LEFT, _SHIFT_CHANCE, _DOWN, _RIGHT, _ROTATE_CHANCE, _ANGLE = range(11)
_VERTICAL, _ZOOM_CHANCE, _FACTOR = 500, 501, 502
_RESIZE_CHANCE, _AREA, _ASPECT, _WINDOW_TOP, _WINDOW_LEFT = range(503, 508)


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
class VerticalFlip(Transform):
    """Mirror up and down."""

    name: ClassVar[str] = "vertical_flip"
    order: ClassVar[int] = 21

    def apply(self, images: Images, draw: Draw) -> Images:
        """The mirrored images."""
        chosen = draw.chosen(_VERTICAL, self.probability)
        for values in images:
            if len(chosen):
                values[chosen] = values[chosen, :, ::-1]
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
        size = images[0].shape[2:]
        return warped(images, chosen, lambda sample: rotation(size, float(angles[sample])))


@final
class Zoom(Transform):
    """Enlarge or shrink about the centre, zeros around; images bilinear, masks by the nearest pixel."""

    name: ClassVar[str] = "zoom"
    order: ClassVar[int] = 35
    strength: float = option(
        0.2, "how much larger an image becomes at most; or smaller, by the same factor", gt=0, le=4
    )

    def apply(self, images: Images, draw: Draw) -> Images:
        """The zoomed images: by a factor from ``1 / (1 + strength)`` to ``1 + strength``, even in its logarithm."""
        chosen = draw.chosen(_ZOOM_CHANCE, self.probability)
        most, size = np.log1p(self.strength), images[0].shape[2:]
        factors = np.exp(draw.between(_FACTOR, -most, most))
        return warped(images, chosen, lambda sample: zoom(size, float(factors[sample])))


@final
class ResizedCrop(Transform):
    """Take a random window and enlarge it to the whole image (Szegedy et al., 2015); images bilinear, masks nearest."""

    name: ClassVar[str] = "resized_crop"
    order: ClassVar[int] = 45
    scale: float = option(0.3, "smallest share of the area that a window has", gt=0, lt=1)
    ratio: float = option(4 / 3, "largest ratio of the window's sides, beyond that of the image", ge=1, le=10)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The enlarged windows."""
        chosen = draw.chosen(_RESIZE_CHANCE, self.probability)
        height, width = images[0].shape[2:]
        areas = draw.between(_AREA, self.scale, 1.0)
        aspects = np.exp(draw.between(_ASPECT, -np.log(self.ratio), np.log(self.ratio)))
        heights = np.clip(np.rint(height * np.sqrt(areas / aspects)), 1, height).astype(np.int64)
        widths = np.clip(np.rint(width * np.sqrt(areas * aspects)), 1, width).astype(np.int64)
        tops = (draw.uniform(_WINDOW_TOP) * (height - heights + 1)).astype(np.int64)
        lefts = (draw.uniform(_WINDOW_LEFT) * (width - widths + 1)).astype(np.int64)
        boxes = np.stack([tops, lefts, heights, widths], axis=1)
        return warped(images, chosen, lambda sample: window((height, width), boxes[sample].tolist()))


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
