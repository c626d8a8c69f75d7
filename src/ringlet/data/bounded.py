"""Reading files that may lie: sizes are checked before memory is asked for, and only DataError leaves.

Promise: memory for a hostile file stays below twice its size plus 64 MiB. Compressed content that is honestly larger
than that goes to an unnamed temporary file which is memory-mapped, so large real data sets still work.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError
from ringlet.io.disk import free_bytes

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
