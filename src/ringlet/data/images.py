"""Image files, decoded by Pillow when they are asked for (the only place that imports it).

Images are brought to one size (bilinear) and one number of channels; masks to the same size (nearest) and to 0 and 1.
The size in a file's header is checked against the file's own size before anything is decoded.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.arrays import binarize
from ringlet.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_NEAREST, _BILINEAR = 0, 2  # PIL.Image.Resampling by number: Pillow is imported only when an image is read
_FREE_PIXELS = 10_000_000
_PIXELS_PER_BYTE = 64


def list_images(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name; hidden files are left out."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
    )


def natural_shape(path: Path) -> tuple[int, int, int]:
    """(channels, height, width) of an image as stored: one channel for grey, three for everything else."""
    with _opened(path) as image:
        channels = 1 if image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16") else 3
        return channels, image.height, image.width


def common_shape(
    first: Path, input_shape: tuple[int, ...] | None, image_size: tuple[int, int] | None
) -> tuple[int, ...]:
    """What all images become: ``input_shape``, else the first image's channels at ``image_size`` or its own size."""
    if input_shape is None:
        channels, height, width = natural_shape(first)
        return (channels, *(image_size or (height, width)))
    if len(input_shape) != 3 or input_shape[0] not in _MODES:
        raise DataError(f"images cannot have shape {input_shape}: expected (1, H, W), (3, H, W) or (4, H, W)")
    return input_shape


def read_image(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The image as bytes (C, H, W) of ``shape``."""
    channels, height, width = shape
    with _opened(path) as image:
        try:
            image.draft(None, (width, height))  # JPEG only: decode at a fraction of the size when that suffices
            loaded = _to_bytes(image).convert(_MODES[channels])
            if loaded.size != (width, height):
                loaded = loaded.resize((width, height), resample=_BILINEAR)
            values = np.asarray(loaded, dtype=np.uint8)
        except Exception as error:  # decoders raise a wide variety of types on damaged files
            raise DataError(f"{path}: damaged image ({error})") from error
    return values[None] if channels == 1 else np.moveaxis(values, 2, 0)


def read_mask(path: Path, size: tuple[int, int]) -> NDArray[np.float32]:
    """The mask (1, H, W) of 0 and 1. Palette images: index 0 is background; grey and colour: see ``binarize``."""
    height, width = size
    with _opened(path) as image:
        try:
            plain = image if image.mode in ("P", "1", "L", "I") else _to_bytes(image).convert("L")
            if plain.size != (width, height):
                plain = plain.resize((width, height), resample=_NEAREST)
            values = np.asarray(plain)
        except Exception as error:  # as above
            raise DataError(f"{path}: damaged mask ({error})") from error
    is_object = values != 0 if plain.mode == "P" else binarize(values)
    return is_object[None].astype(np.float32)


def _to_bytes(image: Image) -> Image:
    """16-bit grey images scaled to 8 bits; Pillow itself would clip them."""
    if not image.mode.startswith("I;16"):
        return image
    import PIL.Image

    return PIL.Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))


def _opened(path: Path) -> Image:
    import PIL.Image

    with bounded.open_file(path) as file:
        content = file.read()
    limit = _FREE_PIXELS + _PIXELS_PER_BYTE * len(content)
    try:
        # From memory, not from the file: a decoder that believes a length of 2 GiB would allocate that much first.
        image = PIL.Image.open(io.BytesIO(content), formats=_FORMATS)
    except PIL.UnidentifiedImageError as error:  # its own text names an object in memory, not the file
        raise DataError(f"{path}: not a readable image: the content is none of {', '.join(_FORMATS)}") from error
    except Exception as error:  # as above
        raise DataError(f"{path}: not a readable image ({error})") from error
    if not 0 < image.width * image.height <= limit:
        image.close()
        raise DataError(f"{path}: {image.width} x {image.height} pixels: implausible for a file of this size")
    return image
