"""What targets mean: classes, several labels, masks or numbers, to judge by an array of them or as the user says.

| array | task |
| --- | --- |
| integers or truth values (n,), texts (n,), rows with a single 1 (n, K) | classification |
| rows of 0 and 1 (n, K) with any number of ones | multilabel |
| integers or truth values (n, H, W), (n, 1, H, W) or (n, H, W, 1) | segmentation |
| fractions (n,), (n, K), (n, H, W) or (n, K, H, W) | regression |

Every doubtful case says in a remark what was understood, and ``task`` decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.data.masks import MaskMeaning
from ringlet.data.source import TASKS, Indices, Samples, Task, Weights, as_inputs, check_labels, gather
from ringlet.data.values import chunks, first_not_finite
from ringlet.errors import ConfigError, DataError

_MAX_CLASSES = 1 << 20
_WHOLE = "the targets are whole numbers in floating point and taken as numbers (regression): task='classification' if "
_SHOWN = 6


@dataclass(frozen=True)
class Targets:
    """Targets of one part of the data. ``values``: int64 (n,); float32 (n, K) or (n, K, H, W); masks (n, 1, H, W)."""

    task: Task
    values: NDArray[Any]
    num_classes: int
    class_names: tuple[str, ...] = ()
    meaning: MaskMeaning | None = None
    """Of masks."""
    remarks: tuple[str, ...] = ()

    def read(self, indices: NDArray[np.int64], what: str) -> NDArray[Any]:
        """The targets at ``indices`` as a source gives them; masks become classes here."""
        rows = self.values[indices]
        if self.meaning is None:
            return np.asarray(rows)
        found = np.empty((len(rows), *self.meaning.target_shape(*rows.shape[2:])), self.meaning.dtype)
        for place, index in enumerate(indices.tolist()):
            found[place] = self.meaning.target(rows[place, 0], f"{what}, mask {index}")
        return found


@dataclass(frozen=True)
class Wanted:
    """What is known before: by options, or from the training part for the others."""

    task: Task | None = None
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a task that does not exist."""
        if self.task is not None and self.task not in TASKS:
            raise ConfigError(f"task = {self.task!r}: expected {', '.join(TASKS)}")


def understand(values: NDArray[Any], wanted: Wanted, image_size: tuple[int, int] | None, what: str) -> Targets:
    """The targets made of an array; ``image_size`` is that of the inputs if they are images."""
    if values.ndim == 0:
        raise DataError(f"{what}: a single value: expected one target for every sample")
    if (row := first_not_finite(values)) is not None:
        raise DataError(f"{what}: target {row} is not finite: remove these samples, or fill in what is missing")
    task = wanted.task or _guess(values, image_size, what)
    if task == "classification":
        return _classes(values, wanted, what)
    if values.dtype.kind in "US":
        raise DataError(f"{what}: texts cannot be the targets of a {task}: expected numbers")
    if task == "multilabel":
        return _labels(values, wanted, what)
    if task == "segmentation":
        return _masks(values, wanted, image_size, what)
    return _numbers(values, wanted, image_size, what)


def _guess(values: NDArray[Any], image_size: tuple[int, int] | None, what: str) -> Task:
    is_whole, rows = values.dtype.kind in "biu", values.ndim == 2 and values.shape[1] > 1
    if values.dtype.kind in "US":
        return "classification"
    if rows and _is_binary(values):
        return "classification" if (np.count_nonzero(values, axis=1) == 1).all() else "multilabel"
    if rows and is_whole:
        raise DataError(
            f"{what}: {values.shape[1]} columns of integers such as {values.max()}: expected classes (n,), or rows of "
            "0 and 1. Give task='regression' if they are numbers to be predicted"
        )
    if values.ndim <= 2:
        return "classification" if is_whole else "regression"
    if image_size is None:
        raise DataError(
            f"{what}: targets of shape {values.shape} for inputs that are no images: expected (n,) or (n, k)"
        )
    one_plane = values.ndim == 3 or 1 in (values.shape[1], values.shape[-1])
    return "segmentation" if one_plane and (is_whole or _is_binary(values)) else "regression"


def _is_binary(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "b" or all(bool(((rows == 0) | (rows == 1)).all()) for _, rows in chunks(values))


# -- each task --------------------------------------------------------------------------------------------------------
def _classes(values: NDArray[Any], wanted: Wanted, what: str) -> Targets:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind in "US" and values.ndim == 1:
        return _named_classes(values, wanted, what)
    count = wanted.num_classes
    if values.ndim == 2:
        if not _is_binary(values) or not (np.count_nonzero(values, axis=1) == 1).all():
            raise DataError(
                f"{what}: rows of {values.shape[1]}: expected a single 1 in each, or classes as integers (n,)"
            )
        count, values = count or values.shape[1], values.argmax(axis=1)
    if values.ndim != 1:
        raise DataError(f"{what}: targets of shape {values.shape}: expected classes (n,) or one-hot rows (n, k)")
    if values.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
        raise DataError(f"{what}: classes with fractions: expected whole numbers; task='regression' learns numbers")
    classes = values.astype(np.int64)
    count = count or len(wanted.class_names) or max(int(classes.max(initial=0)), 0) + 1
    if count > _MAX_CLASSES:
        raise DataError(f"{what}: label {count - 1:,}: more than a million classes; give num_classes if that is meant")
    checked = check_labels(classes, count, what)
    return Targets("classification", checked, count, wanted.class_names, remarks=_unused(checked, count, what))


def _named_classes(values: NDArray[Any], wanted: Wanted, what: str) -> Targets:
    """Classes as texts: numbered in the order of their names."""
    names = wanted.class_names or tuple(np.unique(values).astype(str).tolist())
    known = {name: index for index, name in enumerate(names)}
    texts = values.astype(str).tolist()
    if unknown := next((text for text in texts if text not in known), None):
        raise DataError(f"{what}: class '{unknown[:60]}', which the training data lack: known {', '.join(names[:12])}")
    labels = np.array([known[text] for text in texts], np.int64)
    return Targets("classification", labels, wanted.num_classes or len(names), names)


def _unused(labels: NDArray[np.int64], num_classes: int, what: str) -> tuple[str, ...]:
    """A remark about classes without samples: often classes that are counted from one."""
    empty = np.flatnonzero(np.bincount(labels, minlength=num_classes) == 0).tolist()
    if not empty or len(labels) < num_classes:
        return ()
    shown = ", ".join(map(str, empty[:_SHOWN])) + (" …" if len(empty) > _SHOWN else "")
    return (f"{what}: {len(empty):,} of {num_classes:,} classes have no samples: {shown}",)


def _labels(values: NDArray[Any], wanted: Wanted, what: str) -> Targets:
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not _is_binary(values):
        raise DataError(
            f"{what}: targets of shape {values.shape}: expected rows (n, k) of 0 and 1, one place per label"
        )
    count = values.shape[1]
    if wanted.num_classes not in (None, count):
        raise DataError(f"{what}: {count} labels in each row: expected {wanted.num_classes}, as num_classes says")
    remark = f"{what}: rows of 0 and 1 are taken as {count} labels of which any number may hold (multilabel)"
    remarks = () if wanted.task else (remark,)
    return Targets("multilabel", values.astype(np.float32), count, wanted.class_names, remarks=remarks)


def _masks(values: NDArray[Any], wanted: Wanted, image_size: tuple[int, int] | None, what: str) -> Targets:
    planes = values if image_size is None else _with_plane(values, image_size)
    if image_size is None or planes.shape[1:] != (1, *image_size):
        raise DataError(f"{what}: masks of shape {values.shape[1:]} for inputs of size {image_size or 'unknown'}")
    meaning = MaskMeaning.of(wanted.num_classes)
    return Targets("segmentation", planes, meaning.num_classes, wanted.class_names or meaning.class_names, meaning)


def _with_plane(values: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    if values.ndim == 3:
        return values[:, None]
    return np.moveaxis(values, 3, 1) if values.ndim == 4 and values.shape[1:3] == size else values


def _numbers(values: NDArray[Any], wanted: Wanted, image_size: tuple[int, int] | None, what: str) -> Targets:
    given = values.shape
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim in (3, 4) and image_size is not None:
        values = _with_plane(values, image_size)
    if values.ndim != 2 and values.shape[2:] != image_size:
        raise DataError(
            f"{what}: numbers of shape {given}: expected (n,), (n, k), or one for every pixel: (n, k, h, w)"
        )
    count = values.shape[1]
    if wanted.num_classes not in (None, count):
        raise DataError(f"{what}: {count} numbers for each sample: expected {wanted.num_classes}, as num_classes says")
    found = Targets("regression", values.astype(np.float32), count, wanted.class_names)
    if (
        wanted.task is None
        and values.ndim == 2
        and all(bool((rows == np.rint(rows)).all()) for _, rows in chunks(values))
    ):
        return replace(found, remarks=(f"{what}: {_WHOLE}they are classes",))
    return found


@final
class TargetedArrays:
    """Inputs, targets of any task and perhaps weights, in memory or in memory-mapped files."""

    def __init__(self, inputs: NDArray[Any], targets: Targets, weights: Weights | None, what: str) -> None:
        self._inputs, self._targets, self._weights, self._what = inputs, targets, weights, what
        self._labels = targets.values if targets.task == "classification" else None
        self.input_shape: tuple[int, ...] = tuple(inputs.shape[1:])
        self.task: Task = targets.task
        self.num_classes = targets.num_classes

    def __len__(self) -> int:
        return len(self._inputs)

    def read(self, indices: Indices) -> Samples:
        """Gather the rows."""
        return as_inputs(gather(self._inputs, indices)), self._targets.read(indices, self._what)

    def weights(self, indices: Indices) -> Weights | None:
        """How much the samples count."""
        return None if self._weights is None else self._weights[indices]
