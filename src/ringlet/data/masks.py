"""Images with masks, for segmentation: ``images/`` beside ``masks/``, or ``NAME.jpg`` beside ``NAME_mask.gif``.

The mask of ``NAME.ext`` is ``NAME`` or ``NAME_mask`` with any image extension. Where ``train``, ``val`` and ``test``
are told apart, they may lie above (``train/images``, ``train/masks``) or below (``images/train``, ``masks/train``), or
have the masks beside them (``train``, ``train_masks``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringlet.data.images import common_shape, list_images, read_mask, read_pair
from ringlet.data.mask_values import BINARY, MaskMeaning
from ringlet.data.remembered import remembered
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Indices, Samples, Source, Task
from ringlet.data.splits import PART_NAMES, split_folders, subfolder
from ringlet.errors import DataError

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
        for row, index in enumerate(indices.tolist()):
            image, mask = self._pairs[index]
            inputs[row], targets[row] = read_pair(image, mask, self.input_shape, self._meaning)
        return inputs, targets


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of one part are; the same folder if the masks have names of their own."""

    images: Path
    masks: Path

    def below(self, name: str) -> MaskFolders | None:
        """The part called ``name`` if both have such a folder."""
        inner = MaskFolders(self.images / name, self.masks / name)
        return inner if inner.images.is_dir() and inner.masks.is_dir() else None


def load_parts(request: Request) -> Parts:
    """Training, validation and test pairs."""
    train, validation, test = _folders(request)
    meaning, pairs = MaskMeaning.of(request.num_classes), find_pairs(train)
    shape = common_shape(pairs[0][0], request.input_shape, request.image_size)
    for _, mask in pairs[:: -(-len(pairs) // _NUM_CHECKED)]:
        read_mask(mask, (shape[1], shape[2]), meaning)  # other kinds of masks are refused here, not in the first epoch

    def source(pairs: Pairs) -> Source:
        num_bytes = int(np.prod(shape)) + np.dtype(meaning.dtype).itemsize * shape[1] * shape[2]
        return remembered(MaskFolderSource(pairs, shape, meaning), num_bytes)

    known = {folders: source(find_pairs(folders)) for folders in (validation, test) if folders is not None}
    others = [known[folders] if folders else None for folders in (validation, test)]  # often the same for both
    return Parts(source(pairs), others[1], others[0], class_names=meaning.class_names)


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
    """The folders of training, validation and test; a validation part serves for test too."""
    above = split_folders(request)
    train = locate(above.train)
    validation, test = (locate(folder) if folder else None for folder in (above.validation, above.test))
    inner = {part: next(filter(None, map(train.below, names)), None) for part, names in PART_NAMES.items()}
    if inner["train"] is None or list_images(train.images):
        return train, validation, test
    return inner["train"], inner["validation"], test or inner["test"] or inner["validation"]
