"""Image files, decoded by Pillow when they are asked for.

Images are brought to one size (bilinear) and one number of channels; masks to the same size (nearest), and to 0 and 1
or to classes.
The size in a file's header is checked against the file's own size before anything is decoded.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.mask_values import BINARY, MaskMeaning
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
    with _opened(path) as image:
        return _decode_image(image, path, shape)


def decode_image(content: bytes, shape: tuple[int, ...], what: Path | str) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The image in ``content`` as bytes (H, W, C), for ``shape`` (C, H, W), and the height and width that it had."""
    with _identified(content, what) as image:
        size = image.height, image.width
        return np.ascontiguousarray(np.moveaxis(_decode_image(image, what, shape), 0, 2)), size


def read_mask(path: Path, size: tuple[int, int], meaning: MaskMeaning = BINARY) -> NDArray[Any]:
    """The mask of 0 and 1 (1, H, W), or the class of every pixel (H, W).

    In palette images the index counts: 0 is background. For grey and colour see :mod:`ringlet.data.mask_values`.
    """
    with _opened(path) as image:
        return _decode_mask(image, path, size, meaning)


def read_pair(
    image_path: Path, mask_path: Path, shape: tuple[int, ...], meaning: MaskMeaning
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """An image and its mask; the mask may be smaller or larger than the image, but not of other proportions."""
    with _opened(image_path) as image, _opened(mask_path) as mask:
        (width, height), (mask_width, mask_height) = image.size, mask.size
        if abs(width * mask_height - height * mask_width) > max(width, height, mask_width, mask_height):
            raise DataError(
                f"{mask_path}: a mask of {mask_width} x {mask_height} pixels for an image of {width} x {height} "
                f"({image_path.name}): expected the same proportions. Is it the mask of another image?"
            )
        return _decode_image(image, image_path, shape), _decode_mask(mask, mask_path, (shape[1], shape[2]), meaning)


def _decode_image(image: Image, path: Path | str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    channels, height, width = shape
    try:
        image.draft(None, (width, height))  # JPEG only: decode at a fraction of the size when that suffices
        loaded = _to_bytes(image).convert(_MODES[channels])
        if loaded.size != (width, height):
            loaded = loaded.resize((width, height), resample=_BILINEAR)
        values = np.asarray(loaded, dtype=np.uint8)
    except Exception as error:  # decoders raise a wide variety of types on damaged files
        raise DataError(f"{path}: damaged image ({error})") from error
    return values[None] if channels == 1 else np.moveaxis(values, 2, 0)


def _decode_mask(image: Image, path: Path, size: tuple[int, int], meaning: MaskMeaning) -> NDArray[Any]:
    height, width = size
    try:
        plain = _plain_mask(image, path, classes=meaning.num_classes > 2)
        if plain.size != (width, height):
            plain = plain.resize((width, height), resample=_NEAREST)
        values = np.asarray(plain)
    except DataError:
        raise
    except Exception as error:  # as above
        raise DataError(f"{path}: damaged mask ({error})") from error
    return meaning.target(values, path, indices=plain.mode == "P")


def _plain_mask(image: Image, path: Path, *, classes: bool) -> Image:
    """The mask with one number per pixel."""
    if image.mode in ("P", "1", "L", "I"):
        return image
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint16)
        return _from_array(values.astype(np.uint8)) if values.max(initial=0) < 256 else _to_bytes(image)
    if classes and len({band.tobytes() for band in image.convert("RGB").split()}) > 1:
        raise DataError(
            f"{path}: a mask in colours: several classes are read from palette images or grey values, class k as k. "
            "Store the masks like that"
        )
    return image.convert("L")


def resize_plane(values: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """A plane (H, W) of numbers brought to another height and width, bilinear."""
    if values.shape == size:
        return values
    import PIL.Image

    resized = PIL.Image.fromarray(np.ascontiguousarray(values, np.float32)).resize(size[::-1], resample=_BILINEAR)
    return np.asarray(resized)


def _to_bytes(image: Image) -> Image:
    """16-bit grey images scaled to 8 bits; Pillow itself would clip them."""
    if not image.mode.startswith("I;16"):
        return image
    return _from_array((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))


def _from_array(values: NDArray[np.uint8]) -> Image:
    import PIL.Image

    return PIL.Image.fromarray(values)


def _content(path: Path) -> bytes:
    with bounded.open_file(path) as file:
        return file.read()


def _opened(path: Path) -> Image:
    return _identified(_content(path), path)


def _identified(content: bytes, name: Path | str) -> Image:
    """The image in ``content``, its size checked, nothing decoded yet."""
    import PIL.Image

    limit = _FREE_PIXELS + _PIXELS_PER_BYTE * len(content)
    try:
        # From memory, not from the file: a decoder that believes a length of 2 GiB would allocate that much first.
        image = PIL.Image.open(io.BytesIO(content), formats=_FORMATS)
    except PIL.UnidentifiedImageError as error:  # its own text names an object in memory, not the file
        raise DataError(f"{name}: not a readable image: the content is none of {', '.join(_FORMATS)}") from error
    except Exception as error:  # as above
        raise DataError(f"{name}: not a readable image ({error})") from error
    if not 0 < image.width * image.height <= limit:
        image.close()
        raise DataError(f"{name}: {image.width} x {image.height} pixels: implausible for a file of this size")
    return image
