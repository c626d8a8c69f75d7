"""Masks as image files, and overlays: the picture with its mask painted over it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.images import STRIP_PIXELS, decode_image
from ringlet.io.disk import replacing

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ((0, 0, 0), (230, 60, 50), (40, 130, 220), (50, 170, 80), (240, 180, 40), (150, 80, 190), (30, 180, 180))
"""Of the classes; further classes repeat them, except the background's."""
_STRENGTH = 0.45
_WHITE = 255


def mask_image(mask: NDArray[Any], num_classes: int) -> Image:
    """A mask (H, W) as a picture: black and white for one class, else a palette (16 bit grey beyond 256 classes)."""
    import PIL.Image

    if num_classes <= 2:
        return PIL.Image.fromarray((mask != 0).astype(np.uint8) * _WHITE)
    image = PIL.Image.fromarray(mask)
    if mask.dtype == np.uint8:
        image.putpalette([value for index in range(256) for value in colour(index)])
    return image


def write_overlay(path: Path, picture: NDArray[np.uint8], mask: NDArray[Any]) -> None:
    """Write the picture (H, W, 3) with the mask's classes tinted and their outlines drawn."""
    import PIL.Image

    colours = np.array([colour(index) for index in range(int(mask.max(initial=0)) + 1)], np.float32)
    edge, painted = outline(mask), np.empty_like(picture)
    num_rows = max(1, STRIP_PIXELS // max(1, mask.shape[1]))
    for top in range(0, len(mask), num_rows):  # or numbers with fractions would take a dozen times as much memory
        rows = slice(top, top + num_rows)
        strength = np.where(edge[rows], 1.0, np.where(mask[rows] != 0, _STRENGTH, 0.0)).astype(np.float32)[:, :, None]
        painted[rows] = np.rint(picture[rows] * (1 - strength) + colours[mask[rows]] * strength).astype(np.uint8)
    write_image(path, PIL.Image.fromarray(painted))


def colour(index: int) -> tuple[int, int, int]:
    """The colour of a class."""
    return COLOURS[0] if index == 0 else COLOURS[1 + (index - 1) % (len(COLOURS) - 1)]


def outline(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Pixels of an object with a neighbour of another class; wider for larger pictures."""
    edge = np.zeros(mask.shape, bool)
    for step in range(1, 1 + max(1, min(mask.shape) // 400)):
        edge[step:] |= mask[step:] != mask[:-step]
        edge[:-step] |= mask[step:] != mask[:-step]
        edge[:, step:] |= mask[:, step:] != mask[:, :-step]
        edge[:, :-step] |= mask[:, step:] != mask[:, :-step]
    return np.asarray(edge & (mask != 0))


def full_picture(picture: Path | bytes | NDArray[Any], size: tuple[int, int], white: float, name: str) -> Any:
    """The whole picture as RGB bytes (H, W, 3): from its file, its content, or stored values (H, W, C)."""
    if isinstance(picture, Path | bytes):
        content = picture.read_bytes() if isinstance(picture, Path) else picture
        return decode_image(content, (3, *size), name)[0]
    scaled = np.clip(np.rint(picture * (_WHITE / white)), 0, _WHITE).astype(np.uint8)
    return np.repeat(scaled, 3, axis=2) if scaled.shape[2] == 1 else scaled[:, :, :3]


def write_image(path: Path, image: Image) -> None:
    """Write a PNG file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=False) as draft:
        image.save(draft, format="PNG", compress_level=1)
