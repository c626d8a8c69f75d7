"""Helpers of the data tests: writers of small files in each format, and a counting source."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ringlet.data.source import ArraySource


def idx_bytes(values: np.ndarray, code: int = 0x08) -> bytes:
    head = bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.tobytes()


@pytest.fixture(scope="session")
def make_idx() -> Callable[..., bytes]:
    return idx_bytes


@pytest.fixture
def idx_folder(tmp_path: Path) -> Path:
    """A folder of the MNIST family: 20 + 6 images of 5x4, plain for training and gzip for test."""
    for split, count in (("train", 20), ("t10k", 6)):
        images = np.arange(count * 20, dtype=np.uint32).astype(np.uint8).reshape(count, 5, 4)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx_bytes(values)
            name = f"{split}-{kind}-ubyte"
            if split == "train":
                (tmp_path / name).write_bytes(content)
            else:
                (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    return tmp_path


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    """Two training files and a test file of CIFAR-10 with few records."""
    folder = tmp_path / "cifar"
    folder.mkdir()
    for number, name in enumerate(("data_batch_1.bin", "data_batch_3.bin", "test_batch.bin")):
        records = np.full((4, 3073), number, dtype=np.uint8)
        records[:, 0] = np.arange(4) + number
        records[:, 1:] += np.arange(4, dtype=np.uint8)[:, None] * 10
        records.tofile(folder / name)
    return folder


class RecordingSource(ArraySource):
    """Remembers which samples were read."""

    def __init__(self, count: int, shape: tuple[int, ...] = (1, 2, 3)) -> None:
        values = np.arange(count * int(np.prod(shape))).astype(np.uint8).reshape(count, *shape)
        super().__init__(values, np.arange(count, dtype=np.int64), max(count, 1))
        self.read_indices: list[int] = []

    def read(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.read_indices += indices.tolist()
        return super().read(indices)


@pytest.fixture(scope="session")
def recording_source() -> type[RecordingSource]:
    return RecordingSource


@pytest.fixture
def save_image() -> Callable[..., None]:
    def save(path: Path, values: np.ndarray, mode: str | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(values)
        if mode == "P":
            image = Image.fromarray(values, mode="L")
            image.putpalette([0, 0, 0, 255, 255, 255, *(number % 256 for number in range(762))])
        image.save(path)

    return save
