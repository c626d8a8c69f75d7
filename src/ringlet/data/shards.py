"""Large image sets as folders of npz shards, each with ``x`` (images) and ``y`` (classes or one-hot rows).

Only the headers and the labels are read at the start. Images are read when asked for: uncompressed shards are
memory-mapped, compressed ones are decompressed as a whole and a few are kept. A shuffled epoch touches many shards per
batch, so store large sets uncompressed (``numpy.savez``). Labels that run from 1 to the number of classes (1000
unless told), as some collections of ImageNet count, are shifted to start at 0.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.normalization import BYTES, IMAGENET, Normalization
from ringlet.data.npz import NpzFile, as_classes, with_channels_first
from ringlet.data.requests import Parts, Request, split_folders
from ringlet.data.source import Indices, Samples, Task, as_inputs, check_labels, gather
from ringlet.errors import DataError

_KEPT_COMPRESSED = 4
_KEPT_MAPPED = 64
_USUAL_CLASSES = 1000


class ShardedSource:
    """The samples of all shards of a folder, in the order of their names."""

    task: Task = "classification"

    def __init__(
        self,
        folder: Path,
        num_classes: int | None,
        input_shape: tuple[int, ...] | None = None,
        first_label: int | None = None,
    ) -> None:
        self._paths = sorted(path for path in folder.glob("*.npz") if not path.name.startswith("."))
        if not self._paths:
            raise DataError(f"no npz shards in {folder}: expected files with the arrays x and y")
        self._asked_shape = input_shape
        self._open: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()
        contents = [_scan(path, input_shape) for path in self._paths]
        self.values_dtype, self.input_shape = contents[0][0], contents[0][1]
        for path, (_, shape, _) in zip(self._paths, contents, strict=True):
            if shape != self.input_shape:
                raise DataError(f"{path}: images of shape {shape}, but {self._paths[0]} has {self.input_shape}")
        self._ends = np.cumsum([len(labels) for _, _, labels in contents])
        self._labels, self.num_classes, self.first_label = self._joined_labels(
            [labels for _, _, labels in contents], num_classes, first_label
        )

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, indices: Indices) -> Samples:
        """Gather the samples; each shard concerned is visited once."""
        owners = np.searchsorted(self._ends, indices, side="right")
        inputs = np.empty((len(indices), *self.input_shape), np.uint8 if self.values_dtype == np.uint8 else np.float32)
        for owner in np.unique(owners).tolist():
            where = np.flatnonzero(owners == owner)
            start = int(self._ends[owner - 1]) if owner else 0
            inputs[where] = as_inputs(gather(self._images(owner), indices[where] - start))
        return inputs, self._labels[indices]

    def _images(self, owner: int) -> NDArray[Any]:
        with self._lock:
            if owner in self._open:
                self._open.move_to_end(owner)
                return self._open[owner]
            file = NpzFile(self._paths[owner])
            key = _keys(file)[0]
            limit = _KEPT_MAPPED if file.is_mapped(key) else _KEPT_COMPRESSED
            while len(self._open) >= limit:
                self._open.popitem(last=False)
            images = with_channels_first(file.array(key), self._asked_shape, f"{file.path}[{key}]")
            self._open[owner] = images
            return images

    def _joined_labels(
        self, parts: list[NDArray[np.int64]], num_classes: int | None, first_label: int | None
    ) -> tuple[NDArray[np.int64], int, int]:
        """All labels counted from 0, the number of classes, and what the files count from."""
        lowest, highest = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
        if first_label is None:
            first_label = 1 if lowest >= 1 and highest == (num_classes or _USUAL_CLASSES) else 0
        classes = num_classes or highest + 1 - first_label
        checked = [
            check_labels(part - first_label, classes, path) for part, path in zip(parts, self._paths, strict=True)
        ]
        return np.concatenate(checked), classes, first_label


def load_parts(request: Request) -> Parts:
    """Training and test shards."""
    folders = split_folders(request)
    train = ShardedSource(folders.train, request.num_classes, request.input_shape)
    test, validation = (
        ShardedSource(folder, train.num_classes, train.input_shape, train.first_label) if folder else None
        for folder in (folders.test, folders.validation)
    )
    constants = Normalization()
    if train.values_dtype == np.uint8:
        constants = IMAGENET if train.input_shape[0] == 3 else BYTES
    return Parts(train, test, validation, normalization=constants)


def _keys(file: NpzFile) -> tuple[str, str]:
    keys = file.find(None)
    if keys is None:
        raise DataError(f"{file.path} holds {', '.join(file.keys)[:200] or 'no arrays'}: expected the arrays x and y")
    return keys


def _scan(path: Path, input_shape: tuple[int, ...] | None) -> tuple[np.dtype[Any], tuple[int, ...], NDArray[np.int64]]:
    """Type and shape of the images and the labels of one shard."""
    file = NpzFile(path)
    input_key, target_key = _keys(file)
    dtype, shape = file.header(input_key)
    stand_in = np.broadcast_to(np.zeros((), dtype), shape)
    oriented = with_channels_first(stand_in, input_shape, f"{path}[{input_key}]").shape[1:]
    labels = as_classes(file.array(target_key), f"{path}[{target_key}]")
    if labels.dtype.kind not in "iu" or len(labels) != shape[0]:
        raise DataError(f"{path}: {len(labels)} labels of type {labels.dtype} for {shape[0]} images: expected as many")
    return dtype, oriented, labels.astype(np.int64)
