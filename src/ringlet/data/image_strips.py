"""Pictures brought to another mode and size without a second copy of a large one in memory.

The results are, bit for bit, those of Pillow's ``convert`` and ``resize`` of the whole picture. Converting concerns
each pixel alone, so it can be done for some rows at a time; resizing concerns each band (red, green, …) alone. So one
band after the other is converted, strip by strip, and resized: one byte per pixel beside the picture itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

STRIP_PIXELS = 1 << 20
WHOLE_PIXELS = 16 << 20
"""Pictures up to this size are converted at once, which is faster; a copy of one takes 64 MiB."""
_BILINEAR = 2  # PIL.Image.Resampling by number: Pillow is imported only when an image is read
_PREMULTIPLIED = {"RGBA": "RGBa"}
"""What Pillow resizes pictures with transparency as, so that the colour of invisible pixels does not count."""


def strips(image: Image) -> Iterator[tuple[int, Image]]:
    """The picture from top to bottom, some rows at a time, each with the number of its first row."""
    num_rows = max(1, STRIP_PIXELS // image.width)
    if num_rows >= image.height:
        yield 0, image
        return
    for top in range(0, image.height, num_rows):
        yield top, image.crop((0, top, image.width, min(top + num_rows, image.height)))


def scaled(image: Image, mode: str, size: tuple[int, int]) -> Image:
    """The picture in ``mode``, of ``size`` (width, height): bilinear, with antialiasing."""
    image.load()  # before its size is asked for: some files say how they are to be turned
    if is_sixteen_bit(image):
        image = to_grey(image)
    if image.size == size:
        return _in_mode(image, mode)
    working = _PREMULTIPLIED.get(mode, mode)
    if image.mode == "L" and working == mode:
        return _in_mode(image.resize(size, resample=_BILINEAR), mode)
    if image.mode == mode == working or image.width * image.height <= WHOLE_PIXELS:
        return _in_mode(image, mode).resize(size, resample=_BILINEAR)
    import PIL.Image

    bands = [_resized_band(image, mode, index, size) for index in range(len(mode))]  # each has a letter
    merged = PIL.Image.merge(working, bands)
    return merged if working == mode else merged.convert(mode)


def _resized_band(image: Image, mode: str, index: int, size: tuple[int, int]) -> Image:
    """One band of the picture in ``mode``."""
    import PIL.Image

    band = PIL.Image.new("L", image.size)
    for top, strip in strips(image):
        converted = _in_mode(strip, mode)
        band.paste(_in_mode(converted, _PREMULTIPLIED.get(mode, mode)).getchannel(index), (0, top))
    return band.resize(size, resample=_BILINEAR)


def to_grey(image: Image, shift: int = 8) -> Image:
    """The picture as grey bytes; of 16 bits the upper ones, or with another ``shift`` others."""
    import PIL.Image

    grey = PIL.Image.new("L", image.size)
    for top, strip in strips(image):
        grey.paste(_in_mode(strip, "L", shift), (0, top))
    return grey


def is_sixteen_bit(image: Image) -> bool:
    """Whether it is grey with 16 bits, which has several names."""
    return image.mode.startswith("I;16")


def values16(image: Image) -> NDArray[np.uint16]:
    """The values (H, W) of grey with 16 bits."""
    return np.asarray(image).astype(np.uint16)


def _in_mode(image: Image, mode: str, shift: int = 8) -> Image:
    """Converted; 16-bit grey is scaled to 8 bits, where Pillow itself would clip it."""
    import PIL.Image

    if is_sixteen_bit(image):
        image = PIL.Image.fromarray((values16(image) >> shift).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)
