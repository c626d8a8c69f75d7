"""CIFAR-10 and CIFAR-100, binary version: records of one (two) label bytes and 3 x 32 x 32 pixels, memory-mapped.

A folder need not be complete: any of ``data_batch_1.bin`` … ``data_batch_5.bin`` serve for training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ringlet.data import bounded
from ringlet.data.source import Indices, JoinedSource, Samples, Source, Task, check_labels
from ringlet.errors import DataError

_PIXELS = 3 * 32 * 32
_SUBFOLDERS = (".", "cifar-10-batches-bin", "cifar-100-binary")


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


def load_split(folder: Path, split: Literal["train", "test"], kind: Literal["cifar10", "cifar100"]) -> Source | None:
    """The files of a split that are in ``folder`` (or its usual subfolder), joined; None when there are none."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected one with data_batch_1.bin or train.bin")
    if kind == "cifar10":
        names = [f"data_batch_{number}.bin" for number in range(1, 6)] if split == "train" else ["test_batch.bin"]
    else:
        names = [f"{split}.bin"]
    paths = [folder / sub / name for sub in _SUBFOLDERS for name in names if (folder / sub / name).exists()]
    label_bytes, classes = (1, 10) if kind == "cifar10" else (2, 100)
    parts = [CifarFile(path, classes, label_bytes) for path in paths]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else JoinedSource(parts)


def fine_class_names(folder: Path) -> tuple[str, ...]:
    """The names of the 100 classes, if the list that comes with CIFAR-100 is in the folder."""
    for path in (folder / sub / "fine_label_names.txt" for sub in _SUBFOLDERS):
        if path.is_file() and path.stat().st_size < 65_536:
            names = tuple(
                line.strip() for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()
            )
            return names if len(names) == 100 else ()
    return ()


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
