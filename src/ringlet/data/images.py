"""Image files, decoded by Pillow when they are asked for: the one decoder of training, prediction and databases.

Images are brought to one size (bilinear) and one number of channels; masks to the same size (nearest), and to 0 and 1
or to classes. Sizes are checked before anything is decoded (:mod:`ringlet.data.image_files`), and no second copy of a
large picture is made (:mod:`ringlet.data.image_strips`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.image_files import check_decodable, identify, open_image, reduce_to
from ringlet.data.image_strips import is_sixteen_bit, scaled, strips, to_grey, values16
from ringlet.data.mask_values import BINARY, MaskMeaning
from ringlet.errors import DataError, RingletError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_NEAREST, _BILINEAR = 0, 2  # PIL.Image.Resampling by number: Pillow is imported only when an image is read


def list_images(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name; hidden files are left out."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
    )


def natural_shape(path: Path) -> tuple[int, int, int]:
    """(channels, height, width) of an image as stored: one channel for grey, three for everything else."""
    with open_image(path) as image:
        channels = 1 if image.mode in ("1", "L", "LA", "I", "F") or is_sixteen_bit(image) else 3
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
    with open_image(path) as image:
        return _decode_image(image, path, shape)


def decode_image(content: bytes, shape: tuple[int, ...], what: Path | str) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The image in ``content`` as bytes (H, W, C), for ``shape`` (C, H, W), and the height and width that it had."""
    with identify(content, what) as image:
        size = image.height, image.width
        return np.ascontiguousarray(np.moveaxis(_decode_image(image, what, shape), 0, 2)), size


def read_mask(path: Path, size: tuple[int, int], meaning: MaskMeaning = BINARY) -> NDArray[Any]:
    """The mask of 0 and 1 (1, H, W), or the class of every pixel (H, W).

    In palette images the index counts: 0 is background. For grey and colour see :mod:`ringlet.data.mask_values`.
    """
    with open_image(path) as image:
        return _decode_mask(image, path, size, meaning)


def read_pair(
    image_path: Path, mask_path: Path, shape: tuple[int, ...], meaning: MaskMeaning
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """An image and its mask; the mask may be smaller or larger than the image, but not of other proportions."""
    with open_image(image_path) as image, open_image(mask_path) as mask:
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
        reduce_to(image, (width, height), path)
        values = np.asarray(scaled(image, _MODES[channels], (width, height)), dtype=np.uint8)
    except RingletError:
        raise
    except Exception as error:  # decoders raise a wide variety of types on damaged files
        raise DataError(f"{path}: damaged image ({error})") from error
    return values[None] if channels == 1 else np.moveaxis(values, 2, 0)


def _decode_mask(image: Image, path: Path, size: tuple[int, int], meaning: MaskMeaning) -> NDArray[Any]:
    height, width = size
    try:
        check_decodable(image, path)
        plain = _plain_mask(image, path, classes=meaning.num_classes > 2)
        if plain.size != (width, height):
            plain = plain.resize((width, height), resample=_NEAREST)
        values = np.asarray(plain)
    except RingletError:
        raise
    except Exception as error:  # as above
        raise DataError(f"{path}: damaged mask ({error})") from error
    return meaning.target(values, path, indices=plain.mode == "P")


def _plain_mask(image: Image, path: Path, *, classes: bool) -> Image:
    """The mask with one number per pixel."""
    image.load()
    if image.mode in ("P", "1", "L", "I"):
        return image
    if is_sixteen_bit(image):
        largest = max(int(values16(strip).max(initial=0)) for _, strip in strips(image))
        return to_grey(image, shift=0 if largest < 256 else 8)
    if classes and any(_is_coloured(strip) for _, strip in strips(image)):
        raise DataError(
            f"{path}: a mask in colours: several classes are read from palette images or grey values, class k as k. "
            "Store the masks like that"
        )
    return to_grey(image)


def _is_coloured(image: Image) -> bool:
    bands = np.asarray(image.convert("RGB"))
    return bool((bands != bands[:, :, :1]).any())


def resized_rows(values: NDArray[np.float32], size: tuple[int, int]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """A plane (H, W) of numbers brought to another height and width, bilinear: some rows of it at a time."""
    import PIL.Image

    plane = PIL.Image.fromarray(np.ascontiguousarray(values, np.float32))
    if values.shape != size:
        plane = plane.resize(size[::-1], resample=_BILINEAR)
    for top, strip in strips(plane):
        yield slice(top, top + strip.height), np.asarray(strip)
