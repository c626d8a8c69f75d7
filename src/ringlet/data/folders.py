"""Image files in folders: one subfolder per class, or images with masks.

Classes: ``train/CLASS/*.png`` (and ``val``, ``test``), or ``CLASS/*.jpg``, numbered in the order of their names. Every
folder that is not hidden counts, also one without pictures, so that a number does not depend on the content.

Masks: ``images/`` beside ``masks/``, or ``NAME.jpg`` beside ``NAME_mask.gif``. The mask of ``NAME.ext`` is ``NAME`` or
``NAME_mask`` with any image extension. Where ``train``, ``val`` and ``test`` are told apart, they may lie above
(``train/images``, ``train/masks``) or below (``images/train``, ``masks/train``), or have the masks beside them
(``train``, ``train_masks``).

All images are brought to ``image_size``; without one, to the size of the first image. They have colours if any of them
has (:mod:`ringlet.data.survey`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringlet.data.broken import Broken, advised, left_out, readable, unreadable
from ringlet.data.cache import RemotePath
from ringlet.data.images import list_images, read_image, read_mask, read_pair
from ringlet.data.masks import BINARY, MaskMeaning
from ringlet.data.requests import PART_NAMES, Parts, Request, split_folders, subfolder
from ringlet.data.source import Indices, Samples, Source, Task, cached
from ringlet.data.survey import Survey, common_shape, survey
from ringlet.errors import DataError

Files = Sequence[Sequence[Path]]
"""The files of every sample: an image, or an image and its mask."""


# -- files that cannot be read ----------------------------------------------------------------------------------------
@dataclass
class Checked:
    """What the files of all parts look like, and which samples are left with ``skip_broken``; without, an error."""

    surveys: dict[Any, Survey]
    """Of the images of each part."""
    kept: dict[Any, list[int]]
    broken: list[Broken]
    skip: bool
    num_samples: int

    @classmethod
    def of(cls, parts: Mapping[Any, Files], request: Request) -> Checked:
        """Look at the files of all parts, so that an error names all that cannot be read at once."""
        surveys: dict[Any, Survey] = {}
        broken: list[Broken] = []
        for part, files in parts.items():
            if surveys and isinstance(files[0][0], RemotePath) and not request.skip_broken:
                continue  # files of an object store are fetched when they are needed
            of_kind = [survey(paths, all_files=request.skip_broken) for paths in zip(*files, strict=True)]
            surveys[part] = of_kind[0]
            broken += [one for found in of_kind for one in found.broken]
        num_samples = sum(map(len, parts.values()))
        if broken and not request.skip_broken:
            raise unreadable(broken, sum(len(paths) for files in parts.values() for paths in files))
        bad = {one.path for one in broken}
        kept = {
            part: [index for index, paths in enumerate(files) if bad.isdisjoint(map(str, paths))]
            for part, files in parts.items()
        }
        if any(not indices for indices in kept.values()):
            raise unreadable(broken, num_samples)
        return cls(surveys, kept, broken, request.skip_broken, num_samples)

    def decoded(self, source: Source, paths: Sequence[Path]) -> Source:
        """The samples that can be read to the end, if others are to be left out; else all."""
        if not self.skip:
            return source
        found, broken = readable(source, paths)
        self.broken += broken
        return found

    def remarks(self) -> list[str]:
        """What was left out, when all sources are made."""
        return left_out(self.broken, self.num_samples)


# -- a folder per class -----------------------------------------------------------------------------------------------
_MAX_SHOWN = 6


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
        with advised():
            for row, index in zip(inputs, indices.tolist(), strict=True):
                row[...] = read_image(self._paths[index], self.input_shape)
        return inputs, self._labels[indices]

    def files(self, index: int) -> tuple[Path, ...]:
        """The file of a sample."""
        return (self._paths[index],)


def load_folders(request: Request) -> Parts:
    """Class folders, or images with masks if that is what the folder holds."""
    folders = split_folders(request)
    if looks_like_masks(folders.train):
        return load_masks(request)
    classes = class_names(folders.train)
    num_classes = request.num_classes or len(classes)
    if len(classes) > num_classes:
        raise DataError(f"{folders.train} has {len(classes)} class folders: expected at most {num_classes}")
    parts = dict.fromkeys(folder for folder in (folders.train, folders.validation, folders.test) if folder)
    listed = {folder: _list_samples(folder, classes) for folder in parts}
    checked = Checked.of({folder: [[path] for path in paths] for folder, (paths, _) in listed.items()}, request)
    first = listed[folders.train][0][checked.kept[folders.train][0]]
    shape, remarks = common_shape(checked.surveys[folders.train], first, request.input_shape, request.image_size)

    def source(folder: Path) -> Source:
        kept = checked.kept[folder]
        paths, labels = [listed[folder][0][index] for index in kept], [listed[folder][1][index] for index in kept]
        found = cached(ClassFolderSource(paths, labels, num_classes, shape), int(np.prod(shape)))
        return checked.decoded(found, paths)

    known = {folder: source(folder) for folder in parts}
    validation, test = (known[folder] if folder else None for folder in (folders.validation, folders.test))
    return Parts(
        known[folders.train],
        test,
        validation,
        class_names=classes,
        remarks=(*remarks, *_without_pictures(classes, listed[folders.train][1]), *checked.remarks()),
        broken=tuple(checked.broken),
    )


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted."""
    names = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))
    if not names:
        raise DataError(
            f"no class folders in {folder}: expected CLASS/*.png, images/ with masks/, or NAME_mask.ext files"
        )
    return names


def _without_pictures(classes: tuple[str, ...], labels: list[int]) -> list[str]:
    """A remark about class folders that hold no pictures."""
    found = set(labels)
    empty = [f"'{name}' (class {label})" for label, name in enumerate(classes) if label not in found]
    if not empty:
        return []
    shown = ", ".join(empty[:_MAX_SHOWN]) + (" …" if len(empty) > _MAX_SHOWN else "")
    return [
        f"{len(empty):,} of {len(classes):,} class folders for training have no pictures directly in them: {shown}. "
        "They count as classes without samples; remove them if they are none"
    ]


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


# -- images with masks ------------------------------------------------------------------------------------------------
_IMAGE_FOLDERS = ("images", "imgs", "image", "img")
_MASK_FOLDERS = ("masks", "mask", "labels", "annotations")
_SUFFIX = "_mask"
_BESIDE = ("_masks", "_mask")
_NUM_CHECKED = 16

Pairs = list[tuple[Path, Path]]


class MaskFolderSource:
    """Pairs of image and mask files, decoded when read."""

    task: Task = "segmentation"

    def __init__(self, pairs: Pairs, shape: tuple[int, ...], meaning: MaskMeaning = BINARY) -> None:
        self._pairs, self._meaning = pairs, meaning
        self.input_shape = shape
        self.num_classes = meaning.num_classes

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, indices: Indices) -> Samples:
        """Decode the pairs at ``indices``."""
        height, width = self.input_shape[1:]
        inputs = np.empty((len(indices), *self.input_shape), dtype=np.uint8)
        targets = np.empty((len(indices), *self._meaning.target_shape(height, width)), self._meaning.dtype)
        with advised():
            for row, index in enumerate(indices.tolist()):
                image, mask = self._pairs[index]
                inputs[row], targets[row] = read_pair(image, mask, self.input_shape, self._meaning)
        return inputs, targets

    def files(self, index: int) -> tuple[Path, ...]:
        """The image and the mask of a sample."""
        return self._pairs[index]


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of one part are; the same folder if the masks have names of their own."""

    images: Path
    masks: Path

    def below(self, name: str) -> MaskFolders | None:
        """The part called ``name`` if both have such a folder."""
        inner = MaskFolders(self.images / name, self.masks / name)
        return inner if inner.images.is_dir() and inner.masks.is_dir() else None


def load_masks(request: Request) -> Parts:
    """Training, validation and test pairs."""
    train, validation, test = _folders(request)
    meaning = MaskMeaning.of(request.num_classes)
    listed = {folders: find_pairs(folders) for folders in (train, validation, test) if folders is not None}
    checked = Checked.of(listed, request)
    pairs = {folders: [found[index] for index in checked.kept[folders]] for folders, found in listed.items()}
    survey_of_images, first = checked.surveys[train], pairs[train][0][0]
    shape, remarks = common_shape(survey_of_images, first, request.input_shape, request.image_size)
    if not request.skip_broken:
        for _, mask in pairs[train][:: -(-len(pairs[train]) // _NUM_CHECKED)]:
            read_mask(mask, (shape[1], shape[2]), meaning)  # other kinds of masks are refused now, not in an epoch

    def source(pairs: Pairs) -> Source:
        num_bytes = int(np.prod(shape)) + np.dtype(meaning.dtype).itemsize * shape[1] * shape[2]
        found = cached(MaskFolderSource(pairs, shape, meaning), num_bytes)
        return checked.decoded(found, [image for image, _ in pairs])

    known = {folders: source(found) for folders, found in pairs.items()}
    others = [known[folders] if folders else None for folders in (validation, test)]
    return Parts(
        known[train],
        others[1],
        others[0],
        class_names=meaning.class_names,
        remarks=(*remarks, *checked.remarks()),
        broken=tuple(checked.broken),
    )


def looks_like_masks(folder: Path) -> bool:
    """Whether a folder follows one of the conventions."""
    located = locate(folder)
    if located.images != located.masks:
        return True
    return any(path.stem.endswith(_SUFFIX) for path in list_images(folder))


def locate(folder: Path) -> MaskFolders:
    """The folders of images and masks in ``folder``, or beside it for the masks."""
    images, masks = subfolder(folder, _IMAGE_FOLDERS), subfolder(folder, _MASK_FOLDERS)
    if images and masks:
        return MaskFolders(images, masks)
    beside = (folder.with_name(folder.name + ending) for ending in _BESIDE) if folder.name else ()
    masks = next((path for path in beside if path.is_dir()), None)
    return MaskFolders(folder, masks) if masks and list_images(folder) else MaskFolders(folder, folder)


def find_pairs(folders: MaskFolders) -> Pairs:
    """Every image with its mask, by name; an image without a mask is an error."""
    mask_files = list_images(folders.masks)
    if folders.images == folders.masks:
        mask_files = [path for path in mask_files if path.stem.endswith(_SUFFIX)]
    masks = {path.stem.removesuffix(_SUFFIX): path for path in mask_files}
    taken = set(mask_files)
    images = [path for path in list_images(folders.images) if path not in taken]
    if not images:
        raise DataError(f"no images in {folders.images}: expected PNG, JPEG, GIF, BMP, TIFF or WebP files")
    missing = [path for path in images if path.stem not in masks]
    if missing:
        raise DataError(
            f"{missing[0]} has no mask in {folders.masks} ({len(missing)} of {len(images)} lack one): "
            f"expected {missing[0].stem}.png or {missing[0].stem}{_SUFFIX}.png or the like"
        )
    return [(path, masks[path.stem]) for path in images]


def _folders(request: Request) -> tuple[MaskFolders, MaskFolders | None, MaskFolders | None]:
    """The folders of training, validation and test."""
    above = split_folders(request)
    train = locate(above.train)
    validation, test = (locate(folder) if folder else None for folder in (above.validation, above.test))
    inner = {part: next(filter(None, map(train.below, names)), None) for part, names in PART_NAMES.items()}
    if inner["train"] is None or list_images(train.images):
        return train, validation, test
    return inner["train"], inner["validation"], test or inner["test"]
