"""The colours of classes, the same wherever classes are drawn: masks, overlays, validation pictures, reports, pages.

Class 0 is black, for the background. The next seven are those of Okabe and Ito (2008), which everyone can tell apart;
further ones turn the hue by the golden angle and change lightness, so that no two of 256 classes look the same.
"""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

_NAMED = (
    (0, 0, 0),
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
_GOLDEN_ANGLE = 0.381966
_LIGHTNESS = (0.40, 0.62, 0.78)
NUM_COLOURS = 256


def _made(index: int) -> tuple[int, int, int]:
    hue = (index * _GOLDEN_ANGLE) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, _LIGHTNESS[index % len(_LIGHTNESS)], 0.55 + 0.4 * (index % 2))
    return round(255 * red), round(255 * green), round(255 * blue)


COLOURS: NDArray[np.uint8] = np.array([*_NAMED, *(_made(index) for index in range(len(_NAMED), NUM_COLOURS))], np.uint8)
"""``(256, 3)``: red, green and blue of every class; classes from 256 on take those of 1, 2, … again."""


def colour(index: int) -> tuple[int, int, int]:
    """The colour of a class."""
    red, green, blue = COLOURS[_place(index)].tolist()
    return red, green, blue


def painted(classes: NDArray[np.integer]) -> NDArray[np.uint8]:
    """An array of classes ``(H, W)`` as colours ``(H, W, 3)``."""
    return COLOURS[np.where(classes < NUM_COLOURS, classes, 1 + (classes - 1) % (NUM_COLOURS - 1))]


def as_hex(index: int) -> str:
    """The colour of a class as pages write it: ``#e69f00``."""
    return "#{:02x}{:02x}{:02x}".format(*colour(index))


def _place(index: int) -> int:
    return index if index < NUM_COLOURS else 1 + (index - 1) % (NUM_COLOURS - 1)
