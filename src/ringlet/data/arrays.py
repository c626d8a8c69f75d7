"""From arrays of an npz file to sources: which axis is which, and what the targets mean.

Layout of inputs: (n, h, w) are images of one channel. Of four axes, the one of length 1, 3 or 4 is the channel; when
both the second and the last qualify or neither does, the second is (NCHW), unless ``input_shape`` says otherwise.
(n, f) are plain features. Targets: integers (n,) or (n, 1) are classes; (n, k) is one-hot; (n, h, w), (n, 1, h, w) or
(n, h, w, 1) are masks: see :mod:`ringlet.data.mask_values`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.mask_values import MaskMeaning
from ringlet.data.normalization import BYTES, Normalization
from ringlet.data.npz import NpzFile, Part
from ringlet.data.requests import Parts, Request
from ringlet.data.source import ArraySource, Indices, Samples, Source, Task, as_inputs, check_labels, gather
from ringlet.errors import DataError

_CHANNELS = (1, 3, 4)
_ONE_HOT_ROWS = 65_536


class MaskedArraySource:
    """Images and masks as arrays."""

    task: Task = "segmentation"

    def __init__(self, images: NDArray[Any], masks: NDArray[Any], meaning: MaskMeaning, what: str) -> None:
        self._images, self._masks, self._meaning, self._what = images, masks, meaning, what
        self.input_shape: tuple[int, ...] = tuple(images.shape[1:])
        self.num_classes = meaning.num_classes

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Indices) -> Samples:
        """Gather images and masks; a binary mask is made of zeros and ones whatever its stored values are."""
        height, width = self.input_shape[1:]
        targets = np.empty((len(indices), *self._meaning.target_shape(height, width)), self._meaning.dtype)
        for row, index in enumerate(indices.tolist()):
            targets[row] = self._meaning.target(self._masks[index, 0], f"{self._what}, mask {index}")
        return as_inputs(gather(self._images, indices)), targets


def with_channels_first(values: NDArray[Any], input_shape: tuple[int, ...] | None, what: str) -> NDArray[Any]:
    """A view of inputs as (n, c, h, w), or (n, f)."""
    shape = values.shape
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4:
        last_is_channel = shape[3] in _CHANNELS and shape[1] not in _CHANNELS
        if input_shape is not None and input_shape in (shape[1:], (shape[3], *shape[1:3])):
            last_is_channel = input_shape != shape[1:]
        values = np.moveaxis(values, 3, 1) if last_is_channel else values
    elif values.ndim != 2:
        raise DataError(f"{what}: shape {shape}: expected (n, h, w), (n, c, h, w), (n, h, w, c) or (n, f)")
    if values.size == 0:
        raise DataError(f"{what}: shape {shape}: expected at least one sample")
    return values


def as_classes(targets: NDArray[Any], what: str) -> NDArray[Any]:
    """Integer classes (n,) from classes or one-hot rows."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim == 2:
        starts = range(0, len(targets), _ONE_HOT_ROWS)
        return np.concatenate([targets[start : start + _ONE_HOT_ROWS].argmax(axis=1) for start in starts])
    if targets.ndim != 1:
        raise DataError(f"{what}: targets of shape {targets.shape}: expected classes (n,), one-hot (n, k) or masks")
    if targets.dtype.kind == "f" and np.array_equal(targets, np.rint(targets)):
        with np.errstate(invalid="ignore"):
            return targets.astype(np.int64)
    return targets


def make_source(file: NpzFile, keys: tuple[str, str], request: Request, num_classes: int | None) -> Source:
    """The source made of two arrays of a file."""
    input_key, target_key = keys
    images = with_channels_first(file.array(input_key), request.input_shape, f"{file.path}[{input_key}]")
    targets, what = file.array(target_key), f"{file.path}[{target_key}]"
    if len(images) != len(targets):
        raise DataError(f"{what}: {len(targets)} targets for {len(images)} inputs: expected as many")
    if targets.ndim >= 3 or "mask" in target_key:
        masks = with_channels_first(targets, (1, *images.shape[2:]), what)
        if masks.shape[1:] != (1, *images.shape[2:]):
            raise DataError(f"{what}: masks of shape {targets.shape[1:]} for images of shape {images.shape[1:]}")
        return MaskedArraySource(images, masks, MaskMeaning.of(request.num_classes), what)
    classes = as_classes(targets, what)
    known = num_classes or _count_classes(targets, classes, what)
    return ArraySource(images, check_labels(classes, known, what), known)


def _count_classes(targets: NDArray[Any], classes: NDArray[Any], what: str) -> int:
    if targets.ndim == 2 and targets.shape[1] > 1:
        return int(targets.shape[1])
    if classes.dtype.kind not in "iu":
        raise DataError(f"{what}: targets of type {classes.dtype}: expected integer classes")
    highest = int(classes.max())
    if highest >= 1 << 20:
        raise DataError(f"{what}: label {highest}: more than a million classes; give num_classes if that is meant")
    return max(highest, 0) + 1


def load_parts(request: Request) -> Parts:
    """Training and test part, from one npz file or two."""
    train_path, test_path = request.folders()
    file = NpzFile(train_path)
    keys = file.find("train") or file.find(None)
    if keys is None:
        raise DataError(
            f"{train_path} holds {', '.join(file.keys)[:200] or 'no arrays'}: expected keys such as images and labels, "
            "x and y, images and masks, or x_train, y_train, x_test and y_test"
        )
    train = make_source(file, keys, request, request.num_classes)
    classes = train.num_classes if train.task == "classification" else None
    test = _other(file if test_path == train_path else NpzFile(test_path), "test", test_path, request, classes)
    validation = _other(file, "validation", train_path, request, classes)
    is_bytes = file.header(keys[0])[0] == np.uint8
    return Parts(train, test, validation, normalization=BYTES if is_bytes else Normalization())


def _other(file: NpzFile, part: Part, path: Path, request: Request, classes: int | None) -> Source | None:
    keys = file.find(part)
    if keys is None and part == "test" and request.test_path == path and path != request.train_path:
        keys = file.find(None)
        if keys is None:
            raise DataError(f"no test data in {path}: expected keys such as x and y, or x_test and y_test")
    return make_source(file, keys, request, classes) if keys else None
