"""Opening image files that may lie: what they are, how many pixels they have, and how many may be decoded.

Two limits, both checked before a pixel is decoded. A file cannot hold many more pixels than it has bytes. And decoders
keep whole pictures in memory, four bytes for each pixel or more: so pictures of more than ``MAX_PIXELS`` are refused,
unless ``RINGLET_MAX_PIXELS`` says otherwise. What counts are pixels that are held at once: a JPEG file is decoded at a
fraction of its size where less is wanted, so a photograph of 200 million pixels passes.
"""

from __future__ import annotations

import io
import os
import struct
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringlet.data import bounded
from ringlet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 64_000_000
"""More than cameras of today have (61 million), and at most about 512 MiB while a picture is decoded."""
MAX_PIXELS_VARIABLE = "RINGLET_MAX_PIXELS"
_PLUGINS: Final = {
    "PNG": "PngImagePlugin",
    "JPEG": "JpegImagePlugin",
    "GIF": "GifImagePlugin",
    "BMP": "BmpImagePlugin",
    "TIFF": "TiffImagePlugin",
    "WEBP": "WebPImagePlugin",
    "PPM": "PpmImagePlugin",
}
"""The formats that are read, by the modules of Pillow that read them."""
_COPIES: Final = {"WEBP": 2}
"""How much more than others a decoder holds: 16 bytes for a pixel in place of 4 to 8."""
_FREE_PIXELS = 10_000_000
_PIXELS_PER_BYTE = 64
_PREFIX_BYTES = 16


def open_image(path: Path) -> Image:
    """The image in a file, its size plausible, nothing decoded yet."""
    with bounded.open_file(path) as file:
        return identify(file.read(), path)


def identify(content: bytes, name: Path | str) -> Image:
    """The image in ``content``, as :func:`open_image` gives it; ``name`` is for errors."""
    limit = _FREE_PIXELS + _PIXELS_PER_BYTE * len(content)
    try:
        image = _open(content)
    except Exception as error:  # decoders raise a wide variety of types on damaged files
        raise DataError(f"{name}: not a readable image ({error})") from error
    if image is None:
        raise DataError(f"{name}: not a readable image: the content is none of {', '.join(_PLUGINS)}")
    if not 0 < image.width * image.height <= limit:
        image.close()
        raise DataError(f"{name}: {image.width} x {image.height} pixels: implausible for a file of this size")
    return image


def _open(content: bytes) -> Image | None:
    """What ``PIL.Image.open`` gives, without its own limit, which warns of pictures that are fine here.

    From memory, not from the file: a decoder that believes a length of 2 GiB would allocate that much first.
    """
    import PIL.Image

    prefix = content[:_PREFIX_BYTES]
    for kind, module in _PLUGINS.items():
        if kind not in PIL.Image.OPEN:
            import_module(f"PIL.{module}")
        factory, accept = PIL.Image.OPEN[kind]
        verdict = accept is None or accept(prefix)
        if not verdict or isinstance(verdict, str):  # a text says what support is missing
            continue
        try:
            return factory(io.BytesIO(content), "")
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue  # as Pillow does: it only looked like this format
    return None


def reduce_to(image: Image, size: tuple[int, int], name: Path | str) -> None:
    """Let a JPEG image be decoded at a fraction of its size that is still ``size`` (width, height) or larger.

    Checks that what remains to be decoded is within the limit.
    """
    whole = image.size
    image.draft(None, size)
    check_decodable(image, name, whole)


def check_decodable(image: Image, name: Path | str, whole: tuple[int, int] | None = None) -> None:
    """Refuse an image that takes too much memory to decode; ``whole`` is its size before it was reduced."""
    held = whole if whole is not None and image.info.get("progressive") else image.size  # keeps all coefficients
    check_num_pixels(held, name, _COPIES.get(str(image.format), 1))


def check_num_pixels(size: tuple[int, int], name: Path | str, copies: int = 1) -> None:
    """Refuse ``size`` (of any order) if it has more pixels than are allowed; ``copies`` of each are held."""
    limit, needed = max_pixels(), size[0] * size[1] * copies
    if needed > limit:
        twice = f" (each counts {copies} times in this format, whose decoder holds more memory)" if copies > 1 else ""
        raise DataError(
            f"{name}: {size[0]} x {size[1]} pixels{twice}: expected at most {limit:,}, so that one picture cannot take "
            f"all memory. Make it smaller, or set {MAX_PIXELS_VARIABLE}={needed} in the environment"
        )


def max_pixels() -> int:
    """How many pixels of a picture may be in memory at once."""
    text = os.environ.get(MAX_PIXELS_VARIABLE, "")
    if not text:
        return MAX_PIXELS
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1:
        raise ConfigError(f"{MAX_PIXELS_VARIABLE}='{text[:40]}': expected a number of pixels, at least 1")
    return limit
