"""Reading files that may lie: sizes are checked before memory is asked for, and only DataError leaves.

Promise: memory for a hostile file stays below twice its size plus 64 MiB. Compressed content that is honestly larger
than that goes to an unnamed temporary file which is memory-mapped, so large real data sets still work.

Images have a limit that is checked before a pixel is decoded. Decoders keep whole pictures in memory, four bytes for
each pixel or more: so pictures of more than ``MAX_PIXELS`` are refused, unless ``RINGLET_MAX_PIXELS`` says otherwise.
What counts are pixels that are held at once: a JPEG file is decoded at a fraction of its size where less is wanted, so
a photograph of 200 million pixels passes. Pictures beyond the limit must also be plausible, not many more pixels than
bytes. Below it the size of the file says nothing: a clean mask of 12 million pixels is a PNG of a few kilobytes.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ConfigError, DataError
from ringlet.io.disk import free_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


MEBIBYTE = 1 << 20
IN_MEMORY_ALLOWANCE = 48 * MEBIBYTE
MAX_DEFLATE_RATIO = 1032
MAX_PLAUSIBLE_RATIO = 64
_CHUNK = 4 * MEBIBYTE


class Stream(Protocol):
    """What is decompressed from: anything with ``read``."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes."""


def file_size(path: Path) -> int:
    """Size of a regular file; missing files, folders, pipes and devices are refused."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {_reason(error)}. Check the path.") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is not a regular file: expected a data file")
    return status.st_size


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or raise DataError."""
    file_size(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {_reason(error)}") from error


def map_bytes(path: Path, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """``num_bytes`` of a file from ``offset`` on, memory-mapped read-only."""
    size = file_size(path)
    if offset + num_bytes > size:
        raise DataError(f"{path}: truncated: expected {offset + num_bytes:,} bytes, found {size:,}. Fetch it again.")
    if num_bytes == 0:
        return np.empty(0, dtype=np.uint8)
    try:
        mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(num_bytes,))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot map {path}: {_reason(error)}") from error
    return np.asarray(mapped)


def inflate(stream: Stream, num_bytes: int, compressed_size: int, path: Path) -> NDArray[np.uint8]:
    """Exactly ``num_bytes`` decompressed from ``stream``, after checking that they can be in there at all.

    The caller turns the decompressor's own exceptions into DataError.
    """
    check_plausible(num_bytes, compressed_size, path)
    if num_bytes > 2 * compressed_size + IN_MEMORY_ALLOWANCE:
        return _inflate_to_file(stream, num_bytes, path)
    target = np.empty(num_bytes, dtype=np.uint8)
    position = 0
    for chunk in _chunks(stream, num_bytes, path):
        target[position : position + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        position += len(chunk)
    return target


def _inflate_to_file(stream: Stream, num_bytes: int, path: Path) -> NDArray[np.uint8]:
    """Into a temporary file, which is mapped when all is there: so no more room is taken than there is content, and a
    full file system is an error, not the end of the process."""
    with tempfile.TemporaryFile(buffering=0) as unnamed:
        for chunk in _chunks(stream, num_bytes, path):
            _write(unnamed, chunk, num_bytes, path)
        return np.asarray(np.memmap(unnamed, dtype=np.uint8, mode="c", shape=(num_bytes,)))


def _chunks(stream: Stream, num_bytes: int, path: Path) -> Iterator[bytes]:
    position = 0
    while position < num_bytes:
        chunk = stream.read(min(_CHUNK, num_bytes - position))
        if not chunk:
            raise DataError(f"{path}: truncated: expected {num_bytes:,} bytes of content, found {position:,}")
        yield chunk
        position += len(chunk)


def _write(file: IO[bytes], data: bytes, num_bytes: int, path: Path) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        folder = Path(tempfile.gettempdir())
        raise DataError(
            f"{path}: no room to unpack it: {num_bytes:,} bytes are needed in {folder}, {free_bytes(folder)} "
            f"({error.strerror}). Make room there, or set TMPDIR to a directory that has it"
        ) from error


def check_plausible(num_bytes: int, compressed_size: int, path: Path) -> None:
    """Refuse declared sizes that the compressed bytes cannot hold, and bombs."""
    if num_bytes > compressed_size * MAX_DEFLATE_RATIO + MEBIBYTE:
        raise DataError(
            f"{path}: declares {num_bytes:,} bytes of content, but {compressed_size:,} compressed bytes cannot hold "
            f"more than {compressed_size * MAX_DEFLATE_RATIO:,}. The file is damaged or hostile."
        )
    if num_bytes > max(IN_MEMORY_ALLOWANCE, compressed_size * MAX_PLAUSIBLE_RATIO):
        raise DataError(
            f"{path}: {compressed_size:,} bytes would grow to {num_bytes:,}, more than {MAX_PLAUSIBLE_RATIO} times as "
            "much. If you trust it, store it uncompressed: such files are memory-mapped and may have any size."
        )


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


# -- images: what they are, how many pixels they have, and how many may be decoded ------------------------------------
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
_PIXELS_PER_BYTE = 64
"""What is plausible for a picture beyond the limit."""
_PREFIX_BYTES = 16
_HEADER_BYTES = 128 << 10


def open_image(path: Path) -> Image:
    """The image in a file, its size plausible, nothing decoded yet."""
    with open_file(path) as file:
        return identify(file.read(), path)


def open_header(path: Path) -> Image:
    """The image in a file for its size and mode only, from the beginning of the file where that is enough."""
    with open_file(path) as file:
        content = file.read(_HEADER_BYTES)
        try:
            image = _open(content)
        except Exception:  # the beginning is not enough, or it is damaged: see below
            image = None
        return identify(content + file.read(), path) if image is None else image


def identify(content: bytes, name: Path | str) -> Image:
    """The image in ``content``, as :func:`open_image` gives it; ``name`` is for errors."""
    limit = max(max_pixels(), _PIXELS_PER_BYTE * len(content))
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
