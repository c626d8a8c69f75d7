"""Image folders with one subfolder per class: ``train/CLASS/*.png`` (and ``val``, ``test``), or ``CLASS/*.jpg``.

Classes are numbered in the order of their names. All images are brought to ``image_size``; without one, to the size of
the first image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringlet.data import masks
from ringlet.data.images import common_shape, list_images, read_image
from ringlet.data.remembered import remembered
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Indices, Samples, Source, Task
from ringlet.data.splits import split_folders
from ringlet.errors import DataError


class ClassFolderSource:
    """Image files and their classes, decoded when read."""

    task: Task = "classification"

    def __init__(self, paths: list[Path], labels: list[int], num_classes: int, shape: tuple[int, ...]) -> None:
        self._paths = paths
        self._labels = np.array(labels, dtype=np.int64)
        self.num_classes = num_classes
        self.input_shape = shape

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, indices: Indices) -> Samples:
        """Decode the files at ``indices``."""
        inputs = np.empty((len(indices), *self.input_shape), dtype=np.uint8)
        for row, index in zip(inputs, indices.tolist(), strict=True):
            row[...] = read_image(self._paths[index], self.input_shape)
        return inputs, self._labels[indices]


def load_parts(request: Request) -> Parts:
    """Class folders, or images with masks if that is what the folder holds."""
    folders = split_folders(request)
    if masks.looks_like_masks(folders.train):
        return masks.load_parts(request)
    classes = class_names(folders.train)
    num_classes = request.num_classes or len(classes)
    if len(classes) > num_classes:
        raise DataError(f"{folders.train} has {len(classes)} class folders: expected at most {num_classes}")
    paths, labels = _list_samples(folders.train, classes)
    shape = common_shape(paths[0], request.input_shape, request.image_size)

    def source(paths: list[Path], labels: list[int]) -> Source:
        return remembered(ClassFolderSource(paths, labels, num_classes, shape), int(np.prod(shape)))

    known = {folder: source(*_list_samples(folder, classes)) for folder in {folders.validation, folders.test} if folder}
    validation, test = (known[folder] if folder else None for folder in (folders.validation, folders.test))
    return Parts(source(paths, labels), test, validation, class_names=classes)


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted."""
    names = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))
    if not names:
        raise DataError(
            f"no class folders in {folder}: expected CLASS/*.png, images/ with masks/, or NAME_mask.ext files"
        )
    return names


def _list_samples(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], list[int]]:
    if unknown := sorted(set(class_names(folder)) - set(classes)):
        raise DataError(f"{folder} has class '{unknown[0]}', which the training folder lacks: known {classes[:12]}")
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = list_images(folder / name) if (folder / name).is_dir() else []
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise DataError(f"no images in the class folders of {folder}: expected PNG, JPEG, GIF, BMP, TIFF or WebP files")
    return paths, labels
