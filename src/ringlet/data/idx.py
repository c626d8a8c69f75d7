"""The idx format of MNIST and its relatives, plain (memory-mapped) or gzip (decompressed once).

Layout: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian 32-bit number, then the
values, big-endian. A folder of the MNIST family holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``; a dot in place of the second dash, ``test`` for ``t10k``, a
prefix as in ``emnist-letters-train-…`` and ``.gz`` are accepted too.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.source import ArraySource, check_labels
from ringlet.errors import DataError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(?:.*-)?(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?", re.IGNORECASE)
_SUBFOLDERS = (".", "raw", "MNIST/raw", "FashionMNIST/raw", "mnist", "fashion-mnist")


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file, in its stored type; plain files are memory-mapped."""
    with bounded.open_file(path) as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return _read_gzip(path) if is_gzip else _read_plain(path)


def find_pair(folder: Path, split: Literal["train", "test"]) -> tuple[Path, Path] | None:
    """The image and the label file of a split in a folder (or a usual subfolder of it); None when not there."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected one that holds idx files such as train-images-idx3-ubyte")
    for candidate in (folder / sub for sub in _SUBFOLDERS):
        if candidate.is_dir():
            found = _matches(candidate, split)
            if "images" in found and "labels" in found:
                return found["images"], found["labels"]
    return None


def load_pair(images_path: Path, labels_path: Path, num_classes: int | None) -> ArraySource:
    """Images and labels as one source; without ``num_classes`` the largest label decides."""
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim not in (3, 4):
        raise DataError(f"{images_path}: {images.ndim} dimensions: expected images (n, h, w) or (n, c, h, w)")
    if labels.ndim != 1:
        raise DataError(f"{labels_path}: {labels.ndim} dimensions: expected one label per image, 1 dimension")
    if len(images) != len(labels):
        raise DataError(f"{images_path} holds {len(images)} images but {labels_path} holds {len(labels)} labels")
    if images.size == 0:
        raise DataError(f"{images_path}: shape {images.shape}: expected at least one image of at least one pixel")
    classes = num_classes or (max(int(labels.max()), 0) + 1 if labels.dtype.kind in "iu" else 1)
    with_channel = images[:, None] if images.ndim == 3 else images
    return ArraySource(with_channel, check_labels(labels, classes, labels_path), classes)


def _matches(folder: Path, split: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):  # a plain file sorts before its .gz and wins
        match = _NAME.fullmatch(path.name)
        if match and (match[1].lower() == "train") == (split == "train"):
            found.setdefault(match[2].lower(), path)
    return found


def _read_plain(path: Path) -> NDArray[Any]:
    size = bounded.file_size(path)
    with bounded.open_file(path) as file:
        head = file.read(4 + 4 * 255)
    dtype, shape, offset = _parse_header(head, path)
    num_bytes = math.prod(shape) * dtype.itemsize
    if size != offset + num_bytes:
        raise DataError(f"{path}: its header announces {offset + num_bytes:,} bytes, but the file has {size:,}")
    return bounded.map_bytes(path, offset, num_bytes).view(dtype).reshape(shape)


def _read_gzip(path: Path) -> NDArray[Any]:
    compressed_size = bounded.file_size(path)
    try:
        with bounded.open_file(path) as file, gzip.GzipFile(fileobj=file) as stream:
            head = stream.read(4)
            if len(head) == 4:
                head += stream.read(4 * head[3])
            dtype, shape, _ = _parse_header(head, path)
            content = bounded.inflate(stream, math.prod(shape) * dtype.itemsize, compressed_size, path)
            if stream.read(1):
                raise DataError(f"{path}: more content than its header announces ({content.size:,} bytes)")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}). Fetch it again.") from error
    return content.view(dtype).reshape(shape)


def _parse_header(head: bytes, path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or not 1 <= head[3] <= 8:
        raise DataError(
            f"{path}: not an idx file (it starts with {head[:4].hex() or 'nothing'}): expected 0000 08 03 …"
        )
    offset = 4 + 4 * head[3]
    if len(head) < offset:
        raise DataError(f"{path}: truncated: expected a header of {offset} bytes, found {len(head)}")
    shape = tuple(int(n) for n in np.frombuffer(head, dtype=">u4", count=head[3], offset=4))
    return np.dtype(_TYPES[head[2]]), shape, offset
