"""Formulas of metrics as sums over samples, which add up correctly over batches, shards and ranks.

Every one first gives one value per sample; a function returns (their sum, their number). A mean is taken once, at
the very end: a mean of means would weigh the last, smaller batch (or a rank with fewer samples) too much.
Per-sample values in [0, 1] (accuracies, dice, IoU) are rounded to multiples of 2^-32, so that float64 adds up to two
million of them without any rounding: every split of the data gives the same bits. The others differ by float64's
rounding at most.

``outputs (n, *shape)`` are what the network gives: probabilities after softmax or sigmoid. ``targets`` are whole
numbers, classes ``(n,)`` or per pixel ``(n, H, W)``; or floats of the shape of the outputs (one-hot, masks, values).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError, UsageError
from ringlet.kernels.contract import DICE_SMOOTH

Array = NDArray[Any]

_GRID = 2.0**32


def accuracy(outputs: Array, targets: Array) -> tuple[float, int]:
    """The share of a sample's pixels (a plain classification has one) whose largest output is the target.

    With a single output channel: whether output and target lie on the same side of 0.5.
    """
    if num_channels(outputs) == 1:
        return label_accuracy(outputs, targets)
    return _share_of_pixels(rows(np.argmax(outputs, axis=1) == class_indices(outputs, targets)))


def label_accuracy(outputs: Array, targets: Array) -> tuple[float, int]:
    """The share of a sample's outputs that lie on the same side of 0.5 as their targets."""
    return _share_of_pixels(rows(outputs >= 0.5) == rows(dense_targets(outputs, targets) >= 0.5))


def exact_match(outputs: Array, targets: Array) -> tuple[float, int]:
    """Whether all outputs of a sample are right: its labels, or the class of every pixel."""
    if targets.shape == outputs.shape or num_channels(outputs) == 1:
        right = rows(outputs >= 0.5) == rows(dense_targets(outputs, targets) >= 0.5)
    else:
        right = rows(np.argmax(outputs, axis=1) == class_indices(outputs, targets))
    return float(np.count_nonzero(right.all(axis=1))), len(right)


def top5_accuracy(outputs: Array, targets: Array) -> tuple[float, int]:
    """The share of a sample's pixels whose target is among the five largest outputs (of equal ones the first)."""
    _needclasses("top5_accuracy", outputs)
    classes = class_indices(outputs, targets)[:, np.newaxis]
    chosen = np.take_along_axis(outputs, classes, axis=1)
    index = np.arange(outputs.shape[1]).reshape(1, -1, *[1] * (outputs.ndim - 2))
    num_ahead = ((outputs > chosen) | ((outputs == chosen) & (index < classes))).sum(axis=1)
    right = (num_ahead < 5) & ~np.isnan(chosen[:, 0])
    return _share_of_pixels(rows(right))


def hinge(outputs: Array, targets: Array) -> tuple[float, int]:
    """``max(0, 1 + largest wrong output - right output)`` (Crammer and Singer, 2001), averaged over pixels."""
    _needclasses("hinge", outputs)
    classes = class_indices(outputs, targets)[:, np.newaxis]
    scores = outputs.astype(np.float64)
    right = np.take_along_axis(scores, classes, axis=1)
    np.put_along_axis(scores, classes, -np.inf, axis=1)
    margins = np.maximum(0.0, 1.0 + scores.max(axis=1, keepdims=True) - right)
    return sum_of(rows(margins).mean(axis=1))


def mse(outputs: Array, targets: Array) -> tuple[float, int]:
    """The mean of a sample's squared errors; classes become one-hot."""
    return sum_of((_errors(outputs, targets) ** 2).mean(axis=1))


def mae(outputs: Array, targets: Array) -> tuple[float, int]:
    """The mean of a sample's absolute errors; classes become one-hot."""
    return sum_of(np.abs(_errors(outputs, targets)).mean(axis=1))


def dice(outputs: Array, targets: Array) -> tuple[float, int]:
    """``(2 sum(p t) + s) / (sum p + sum t + s)`` over a sample: 1 minus the dice loss, with its smoothing s."""
    predicted, wanted = rows(outputs.astype(np.float64)), rows(dense_targets(outputs, targets))
    overlap = 2.0 * (predicted * wanted).sum(axis=1) + DICE_SMOOTH
    return _exact_sum(overlap / (predicted.sum(axis=1) + wanted.sum(axis=1) + DICE_SMOOTH))


def iou(outputs: Array, targets: Array) -> tuple[float, int]:
    """Intersection over union (Jaccard) of a sample's predicted and wanted pixels.

    One channel: pixels of at least 0.5. Several: the mean over the classes that occur in the prediction or the target.
    Nothing predicted where nothing is wanted counts as 1.
    """
    if num_channels(outputs) == 1:
        predicted, wanted = outputs >= 0.5, dense_targets(outputs, targets) >= 0.5
    else:
        channels = np.arange(outputs.shape[1]).reshape(1, -1, *[1] * (outputs.ndim - 2))
        predicted = np.argmax(outputs, axis=1)[:, np.newaxis] == channels
        wanted = class_indices(outputs, targets)[:, np.newaxis] == channels
    shape = (len(outputs), outputs.shape[1], -1) if len(outputs) else (0, outputs.shape[1], 1)
    intersection = (predicted & wanted).reshape(shape).sum(axis=2)
    union = (predicted | wanted).reshape(shape).sum(axis=2)
    num_classes = (union > 0).sum(axis=1)
    totals = (intersection / np.maximum(union, 1)).sum(axis=1)
    return _exact_sum(np.where(num_classes > 0, totals / np.maximum(num_classes, 1), 1.0))


def rows(values: Array) -> Array:
    """One row per sample. Contiguous, so that a row's sum does not depend on the other rows."""
    return np.ascontiguousarray(values.reshape(len(values), math.prod(values.shape[1:])))


def _exact_sum(values: Array) -> tuple[float, int]:
    return float((np.rint(values * _GRID) / _GRID).sum()), len(values)


def _share_of_pixels(rows: Array) -> tuple[float, int]:
    """The share of true values in each row, added up."""
    if rows.shape[1] == 1:
        return float(np.count_nonzero(rows)), len(rows)
    return _exact_sum(rows.mean(axis=1))


def sum_of(values: Array) -> tuple[float, int]:
    """The sum of values of samples, correctly rounded, and their number."""
    return math.fsum(values.tolist()), len(values)


def _errors(outputs: Array, targets: Array) -> NDArray[np.float64]:
    return rows(outputs.astype(np.float64) - dense_targets(outputs, targets))


def num_channels(outputs: Array) -> int:
    """Of outputs ``(n, C, …)``."""
    if outputs.ndim < 2:
        raise DataError(f"outputs have shape {outputs.shape}; expected (samples, channels or features, …)")
    return int(outputs.shape[1])


def _needclasses(name: str, outputs: Array) -> None:
    if num_channels(outputs) < 2:
        raise UsageError(
            f"metric '{name}' compares classes, but the outputs have shape {outputs.shape}; use accuracy or iou"
        )


def class_indices(outputs: Array, targets: Array) -> NDArray[np.int64]:
    """The class of each sample (and pixel); one-hot targets give their largest channel."""
    pixels = outputs.shape[:1] + outputs.shape[2:]
    if targets.shape == outputs.shape:
        return np.asarray(np.argmax(targets, axis=1), np.int64)
    if targets.shape != pixels or targets.dtype.kind not in "iu":
        raise _mismatch(outputs, targets)
    if targets.size and not (targets.min() >= 0 and targets.max() < outputs.shape[1]):
        raise DataError(
            f"classes from {targets.min()} to {targets.max()}, but the network has {outputs.shape[1]} outputs (0 … "
            f"{outputs.shape[1] - 1}); check the number of classes"
        )
    return np.asarray(targets, np.int64)


def dense_targets(outputs: Array, targets: Array) -> NDArray[np.float64]:
    """Targets of the shape of the outputs: as they are, as one channel, or one-hot."""
    if targets.shape == outputs.shape:
        return targets.astype(np.float64)
    if num_channels(outputs) == 1 and targets.shape == outputs.shape[:1] + outputs.shape[2:]:
        return targets.astype(np.float64).reshape(outputs.shape)
    classes = class_indices(outputs, targets)[:, np.newaxis]
    one_hot = np.zeros(outputs.shape, np.float64)
    np.put_along_axis(one_hot, classes, 1.0, axis=1)
    return one_hot


def _mismatch(outputs: Array, targets: Array) -> DataError:
    pixels = outputs.shape[:1] + outputs.shape[2:]
    return DataError(
        f"targets of shape {targets.shape} and type {targets.dtype} do not fit outputs of shape {outputs.shape}; "
        f"expected classes (whole numbers) of shape {pixels} or floats of shape {outputs.shape}"
    )
