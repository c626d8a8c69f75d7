"""Image files, decoded by Pillow when they are asked for: the one decoder of training, prediction and databases.

Images are brought to one size (bilinear) and one number of channels; masks to the same size (nearest), and to 0 and 1
or to classes. Sizes are checked before anything is decoded (:mod:`ringlet.data.bounded`), and no second copy of a
large picture is made: one band (red, green, …) after the other is converted, strip by strip, and resized, which takes
one byte per pixel beside the picture itself. The results are, bit for bit, those of Pillow's ``convert`` and ``resize``
of the whole picture, since converting concerns each pixel alone and resizing each band alone.

Pictures are shown upright: the EXIF orientation of a file is applied to the small result, so that turning takes no
memory either. All sizes that leave this module are those of the upright picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.bounded import check_decodable, identify, open_image, reduce_to
from ringlet.data.masks import BINARY, MaskMeaning
from ringlet.errors import DataError, RingletError

if TYPE_CHECKING:
    from PIL.Image import Image


EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_NEAREST, _BILINEAR = 0, 2  # PIL.Image.Resampling by number: Pillow is imported only when an image is read


# -- another mode and size, strip by strip ----------------------------------------------------------------------------
STRIP_PIXELS = 1 << 20
WHOLE_PIXELS = 16 << 20
"""Pictures up to this size are converted at once, which is faster; a copy of one takes 64 MiB."""
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


# -- upright, as cameras say ------------------------------------------------------------------------------------------
_ORIENTATION_TAG = 0x0112
_TURNED = (5, 6, 7, 8)
"""Orientations that exchange width and height."""
_ROWS_REVERSED, _COLUMNS_REVERSED = (3, 4, 7, 8), (2, 3, 6, 7)


def orientation(image: Image) -> int:
    """How the stored pixels must be turned, 1 (not at all) to 8, as EXIF counts; nothing is decoded for it.

    Pillow turns TIFF files by itself when it decodes them. What cannot be understood does not count.
    """
    import PIL.Image

    if image.format == "TIFF":
        return 1
    try:
        found = PIL.Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)  # that of PNG files would decode them first
    except Exception:  # damaged EXIF raises a wide variety of types, and the picture may well be fine
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def upright_size(image: Image) -> tuple[int, int]:
    """Width and height of the picture when it is upright."""
    return _exchanged(image.size, orientation(image))


def _exchanged(size: tuple[int, int], turn: int) -> tuple[int, int]:
    return (size[1], size[0]) if turn in _TURNED else size


def _upright(values: NDArray[Any], turn: int) -> NDArray[Any]:
    """A view of pixels (H, W) or (H, W, C) as stored, turned."""
    values = values.swapaxes(0, 1) if turn in _TURNED else values
    values = values[::-1] if turn in _ROWS_REVERSED else values
    return values[:, ::-1] if turn in _COLUMNS_REVERSED else values


# -- files ------------------------------------------------------------------------------------------------------------
def list_images(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name; hidden files are left out."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
    )


def natural_shape(path: Path) -> tuple[int, int, int]:
    """(channels, height, width) of an upright image: one channel for grey, three for everything else."""
    with open_image(path) as image:
        width, height = upright_size(image)
        return 1 if is_grey(image) else 3, height, width


def is_grey(image: Image) -> bool:
    """Whether the picture has no colours, by its mode."""
    return image.mode in ("1", "L", "LA", "I", "F") or is_sixteen_bit(image)


def has_transparency(image: Image) -> bool:
    """Whether parts of the picture may be transparent."""
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def read_image(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The image as bytes (C, H, W) of ``shape``."""
    with open_image(path) as image:
        return _decode_image(image, path, shape)


def decode_image(content: bytes, shape: tuple[int, ...], what: Path | str) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The image in ``content`` as bytes (H, W, C), for ``shape`` (C, H, W), and the height and width that it had."""
    with identify(content, what) as image:
        width, height = upright_size(image)
        return np.ascontiguousarray(np.moveaxis(_decode_image(image, what, shape), 0, 2)), (height, width)


def read_mask(path: Path, size: tuple[int, int], meaning: MaskMeaning = BINARY) -> NDArray[Any]:
    """The mask of 0 and 1 (1, H, W), or the class of every pixel (H, W).

    In palette images the index counts: 0 is background. For grey and colour see :mod:`ringlet.data.masks`.
    """
    with open_image(path) as image:
        return _decode_mask(image, path, size, meaning)


def read_pair(
    image_path: Path, mask_path: Path, shape: tuple[int, ...], meaning: MaskMeaning
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """An image and its mask; the mask may be smaller or larger than the image, but not of other proportions."""
    with open_image(image_path) as image, open_image(mask_path) as mask:
        (width, height), (mask_width, mask_height) = upright_size(image), upright_size(mask)
        if not _same_proportions((width, height), (mask_width, mask_height)):
            fits_stored = _same_proportions(image.size, mask.size) and orientation(image) != orientation(mask)
            raise DataError(
                f"{mask_path}: a mask of {mask_width} x {mask_height} pixels for an image of {width} x {height} "
                f"({image_path.name}): expected the same proportions. "
                + (_TURNED_APART if fits_stored else "Is it the mask of another image?")
            )
        return _decode_image(image, image_path, shape), _decode_mask(mask, mask_path, (shape[1], shape[2]), meaning)


_LOSSY = ("JPEG", "WEBP")
_TURNED_APART = (
    "They fit as stored, but EXIF orientation turns only one of them: make the mask of the upright picture, or remove "
    "that orientation"
)


def _same_proportions(size: tuple[int, int], other: tuple[int, int]) -> bool:
    return abs(size[0] * other[1] - size[1] * other[0]) <= max(*size, *other)


def _decode_image(image: Image, path: Path | str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    channels, height, width = shape
    try:
        turn = orientation(image)
        size = _exchanged((width, height), turn)
        reduce_to(image, size, path)
        values = _upright(np.asarray(scaled(image, _MODES[channels], size), dtype=np.uint8), turn)
    except RingletError:
        raise
    except Exception as error:  # decoders raise a wide variety of types on damaged files
        raise DataError(f"{path}: damaged image ({error})") from error
    return values[None] if channels == 1 else np.moveaxis(values, 2, 0)


def _decode_mask(image: Image, path: Path, size: tuple[int, int], meaning: MaskMeaning) -> NDArray[Any]:
    height, width = size
    try:
        check_decodable(image, path)
        turn = orientation(image)
        plain = _plain_mask(image, path, meaning)
        indices = plain.mode == "P"
        meaning.check(
            lambda: (np.asarray(strip) for _, strip in strips(plain)),
            path,
            indices=indices,
            lossy=image.format in _LOSSY,
        )
        stored_size = _exchanged((width, height), turn)
        resized = plain if plain.size == stored_size else plain.resize(stored_size, resample=_NEAREST)
        values = _upright(np.asarray(resized), turn)
    except RingletError:
        raise
    except Exception as error:  # as above
        raise DataError(f"{path}: damaged mask ({error})") from error
    return meaning.target(values, path, indices=indices, checked=True)


def _plain_mask(image: Image, path: Path, meaning: MaskMeaning) -> Image:
    """The mask with one number per pixel."""
    image.load()
    if image.mode in ("P", "1", "L", "I"):
        return image
    if is_sixteen_bit(image):
        largest = max(int(values16(strip).max(initial=0)) for _, strip in strips(image))
        return to_grey(image, shift=0 if largest < 256 else 8)
    if image.mode in ("LA", "RGBA") and _is_in_alpha(image):
        return image.getchannel("A")
    if not any(_is_coloured(strip) for _, strip in strips(image)):
        return to_grey(image)
    meaning.check_colours(lambda: (np.asarray(strip.convert("RGB")) for _, strip in strips(image)), path)
    return _brightest_band(image)


def _is_in_alpha(image: Image) -> bool:
    """Whether the picture has one colour and is transparent in places: then these are the mask."""
    *colours, alpha = (image.getchannel(band).getextrema() for band in image.getbands())
    return all(low == high for low, high in colours) and alpha[0] != alpha[1]


def _brightest_band(image: Image) -> Image:
    """The largest of red, green and blue for each pixel: 0 for black alone."""
    import PIL.Image

    brightest = PIL.Image.new("L", image.size)
    for top, strip in strips(image):
        brightest.paste(PIL.Image.fromarray(np.asarray(strip.convert("RGB")).max(axis=2)), (0, top))
    return brightest


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
