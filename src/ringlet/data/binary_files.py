"""Small images in binary files: the idx format of MNIST and its relatives, and CIFAR.

idx, plain (memory-mapped) or gzip (decompressed once): two zero bytes, a type code, the number of dimensions, each
dimension as a big-endian 32-bit number, then the values, big-endian. A folder of the MNIST family holds
``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``; a
dot in place of the second dash, ``test`` for ``t10k``, a prefix as in ``emnist-letters-train-…`` and ``.gz`` are
accepted too.

CIFAR-10 and CIFAR-100, binary version: records of one (two) label bytes and 3 x 32 x 32 pixels, memory-mapped. A folder
need not be complete: any of ``data_batch_1.bin`` … ``data_batch_5.bin`` serve for training.
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
from ringlet.data.source import ArraySource, Indices, JoinedSource, Samples, Source, Task, check_labels
from ringlet.errors import DataError

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_NAME = re.compile(r"(?:.*-)?(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?", re.IGNORECASE)
_IDX_FOLDERS = (".", "raw", "MNIST/raw", "FashionMNIST/raw", "mnist", "fashion-mnist")


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file, in its stored type; plain files are memory-mapped."""
    with bounded.open_file(path) as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return _read_gzip(path) if is_gzip else _read_plain(path)


def find_idx_pair(folder: Path, split: Literal["train", "test"]) -> tuple[Path, Path] | None:
    """The image and the label file of a split in a folder (or a usual subfolder of it); None when not there."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected one that holds idx files such as train-images-idx3-ubyte")
    for candidate in (folder / sub for sub in _IDX_FOLDERS):
        if candidate.is_dir():
            found = _matches(candidate, split)
            if "images" in found and "labels" in found:
                return found["images"], found["labels"]
    return None


def load_idx_pair(images_path: Path, labels_path: Path, num_classes: int | None) -> ArraySource:
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
        match = _IDX_NAME.fullmatch(path.name)
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
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES or not 1 <= head[3] <= 8:
        raise DataError(
            f"{path}: not an idx file (it starts with {head[:4].hex() or 'nothing'}): expected 0000 08 03 …"
        )
    offset = 4 + 4 * head[3]
    if len(head) < offset:
        raise DataError(f"{path}: truncated: expected a header of {offset} bytes, found {len(head)}")
    shape = tuple(int(n) for n in np.frombuffer(head, dtype=">u4", count=head[3], offset=4))
    return np.dtype(_IDX_TYPES[head[2]]), shape, offset


# -- CIFAR ------------------------------------------------------------------------------------------------------------
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PIXELS = 3 * 32 * 32
_CIFAR_FOLDERS = (".", "cifar-10-batches-bin", "cifar-100-binary")


class CifarFile:
    """The records of one file. For CIFAR-100 the fine label (the second byte) is the class."""

    task: Task = "classification"
    input_shape: tuple[int, ...] = (3, 32, 32)

    def __init__(self, path: Path, num_classes: int = 10, num_label_bytes: int = 1) -> None:
        record = num_label_bytes + _PIXELS
        size = bounded.file_size(path)
        if size == 0 or size % record:
            raise DataError(
                f"{path}: truncated or not a CIFAR file: {size:,} bytes, expected a multiple of {record} "
                f"({-(-size // record) * record:,} for {-(-size // record):,} records)"
            )
        self._records = bounded.map_bytes(path, 0, size).reshape(-1, record)
        self._first_pixel = num_label_bytes
        self._labels = check_labels(self._records[:, num_label_bytes - 1], num_classes, path)
        self.num_classes = num_classes

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, indices: Indices) -> Samples:
        """Gather whole records (contiguous), then cut the labels off."""
        pixels = self._records.take(indices, axis=0)[:, self._first_pixel :]
        return pixels.reshape(len(indices), *self.input_shape), self._labels[indices]


def load_cifar_split(
    folder: Path, split: Literal["train", "test"], kind: Literal["cifar10", "cifar100"]
) -> Source | None:
    """The files of a split that are in ``folder`` (or its usual subfolder), joined; None when there are none."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected one with data_batch_1.bin or train.bin")
    if kind == "cifar10":
        names = [f"data_batch_{number}.bin" for number in range(1, 6)] if split == "train" else ["test_batch.bin"]
    else:
        names = [f"{split}.bin"]
    paths = [folder / sub / name for sub in _CIFAR_FOLDERS for name in names if (folder / sub / name).exists()]
    label_bytes, classes = (1, 10) if kind == "cifar10" else (2, 100)
    parts = [CifarFile(path, classes, label_bytes) for path in paths]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else JoinedSource(parts)


def cifar100_class_names(folder: Path) -> tuple[str, ...]:
    """The names of the 100 classes, if the list that comes with CIFAR-100 is in the folder."""
    for path in (folder / sub / "fine_label_names.txt" for sub in _CIFAR_FOLDERS):
        if path.is_file() and path.stat().st_size < 65_536:
            names = tuple(
                line.strip() for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()
            )
            return names if len(names) == 100 else ()
    return ()
