"""Images with masks, for binary segmentation: ``images/`` beside ``masks/``, or ``NAME.jpg`` beside ``NAME_mask.gif``.

The mask of ``NAME.ext`` is ``NAME`` or ``NAME_mask`` with any image extension. Either convention may lie beneath
``train``, ``val`` and ``test``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringlet.data.images import common_shape, list_images, read_image, read_mask
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Indices, Samples, Task
from ringlet.data.splits import split_folders
from ringlet.errors import DataError

_IMAGE_FOLDERS = ("images", "imgs", "image")
_MASK_FOLDERS = ("masks", "mask")
_SUFFIX = "_mask"


class MaskFolderSource:
    """Pairs of image and mask files, decoded when read."""

    task: Task = "segmentation"
    num_classes = 1

    def __init__(self, pairs: list[tuple[Path, Path]], shape: tuple[int, ...]) -> None:
        self._pairs = pairs
        self.input_shape = shape

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, indices: Indices) -> Samples:
        """Decode the pairs at ``indices``."""
        height, width = self.input_shape[1:]
        inputs = np.empty((len(indices), *self.input_shape), dtype=np.uint8)
        targets = np.empty((len(indices), 1, height, width), dtype=np.float32)
        for row, index in enumerate(indices.tolist()):
            image_path, mask_path = self._pairs[index]
            inputs[row] = read_image(image_path, self.input_shape)
            targets[row] = read_mask(mask_path, (height, width))
        return inputs, targets


def load_parts(request: Request) -> Parts:
    """Training, validation and test pairs."""
    folders = split_folders(request)
    pairs = find_pairs(folders.train)
    shape = common_shape(pairs[0][0], request.input_shape, request.image_size)
    validation, test = (
        MaskFolderSource(find_pairs(folder), shape) if folder else None for folder in (folders.validation, folders.test)
    )
    return Parts(MaskFolderSource(pairs, shape), test, validation, class_names=("object",))


def looks_like_masks(folder: Path) -> bool:
    """Whether a folder follows one of the two conventions."""
    if _subfolder(folder, _IMAGE_FOLDERS) and _subfolder(folder, _MASK_FOLDERS):
        return True
    return any(path.stem.endswith(_SUFFIX) for path in list_images(folder))


def find_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Every image with its mask, by name; an image without a mask is an error."""
    images_folder = _subfolder(folder, _IMAGE_FOLDERS) or folder
    masks_folder = _subfolder(folder, _MASK_FOLDERS) or images_folder
    mask_files = list_images(masks_folder)
    if images_folder == masks_folder:
        mask_files = [path for path in mask_files if path.stem.endswith(_SUFFIX)]
    masks = {path.stem.removesuffix(_SUFFIX): path for path in mask_files}
    taken = set(mask_files)
    images = [path for path in list_images(images_folder) if path not in taken]
    if not images:
        raise DataError(f"no images in {images_folder}: expected PNG, JPEG, GIF, BMP, TIFF or WebP files")
    missing = [path for path in images if path.stem not in masks]
    if missing:
        raise DataError(
            f"{missing[0]} has no mask in {masks_folder} ({len(missing)} of {len(images)} lack one): "
            f"expected {missing[0].stem}.png or {missing[0].stem}{_SUFFIX}.png or the like"
        )
    return [(path, masks[path.stem]) for path in images]


def _subfolder(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)
