"""Where a loss meets the network and its targets: the same on every engine, so all compute the same stable form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError, UnknownNameError
from ringlet.models.spec import ModelSpec, Shape

LOSSES = ("categorical_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae")
"""Losses by the names that users write."""

_CATEGORICAL = ("softmax_cross_entropy", "categorical_cross_entropy")


@dataclass(frozen=True)
class Head:
    """Where the loss looks: the kernel's loss, the value it reads, and whether the last node is part of it."""

    kind: str
    prediction: str
    skips_last_node: bool


def loss_head(spec: ModelSpec, loss: str) -> Head:
    """How ``loss`` meets the last node: softmax and sigmoid join their cross-entropy, which then sees logits."""
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    last = spec.nodes[-1]
    joined = last.operation.joined_losses.get(loss)
    if joined is not None:
        return Head(joined, last.inputs[0], True)
    return Head(loss, last.name, False)


class TargetEncoder:
    """Checks targets as users give them and lays them out as losses want them.

    It knows what a loss wants for outputs of a shape: classes ``(…, L)`` int32, or values like the prediction.
    """

    def __init__(self, kind: str, output_shape: Shape, dtype: np.dtype[Any]) -> None:
        self._kind = kind
        self._output_shape = output_shape
        self._dtype = dtype
        self._categorical = kind in _CATEGORICAL

    def buffer(self, lanes: int) -> tuple[Shape, np.dtype[Any]]:
        """Shape and dtype of the array that the loss kernel reads."""
        if self._categorical:
            return (*self._output_shape[1:], lanes), np.dtype(np.int32)
        return (*self._output_shape, lanes), self._dtype

    def check(self, targets: NDArray[Any], num_samples: int) -> NDArray[Any]:
        """The targets as integer classes ``(n, …)`` or floating values ``(n, *output_shape)``, or an error."""
        targets = np.asarray(targets)
        values, classes = (num_samples, *self._output_shape), (num_samples, *self._output_shape[1:])
        if targets.dtype.kind in "iub":
            if targets.shape == values and not self._categorical:
                return targets.astype(self._dtype)
            if targets.shape == classes:
                return self._check_classes(targets)
        elif targets.dtype.kind == "f" and targets.shape == values and not self._categorical:
            return targets.astype(self._dtype, copy=False)
        wanted = f"integer classes of shape {classes}"
        if not self._categorical:
            wanted += f" or floating values of shape {values}"
        raise DataError(f"targets have shape {targets.shape} and dtype {targets.dtype}; the loss expects {wanted}")

    def write(self, targets: NDArray[Any], out: NDArray[Any]) -> None:
        """Lay checked targets ``(n, …)`` out with the batch innermost; padding lanes get zeros."""
        num_samples = len(targets)
        if targets.dtype.kind == "f" or self._categorical:
            out[..., :num_samples] = targets if targets.ndim == 1 else np.moveaxis(targets, 0, -1)
            if num_samples < out.shape[-1]:
                out[..., num_samples:] = 0
            return
        out.fill(0)
        np.put_along_axis(out[..., :num_samples], np.moveaxis(targets, 0, -1)[None], 1, axis=0)

    def arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Checked targets with the samples outermost: classes ``(n, …)`` int64, or values ``(n, *output_shape)``."""
        if targets.dtype.kind == "f" or self._categorical:
            return targets
        values = np.zeros((len(targets), *self._output_shape), self._dtype)
        np.put_along_axis(values, targets[:, None], 1, axis=1)
        return values

    def _check_classes(self, classes: NDArray[Any]) -> NDArray[Any]:
        """Classes in range; with one output and a loss on values, classes are the values 0 and 1 themselves."""
        num_classes = self._output_shape[0]
        one_output = num_classes == 1 and not self._categorical
        limit = 2 if one_output else num_classes
        classes = classes.astype(np.int64, copy=False)
        if classes.size and classes.view(np.uint64).max() >= limit:  # a negative number is a huge one there
            wrong = classes[(classes < 0) | (classes >= limit)].flat[0]
            raise DataError(f"a target is class {wrong}; the network has classes 0 to {limit - 1}")
        if one_output:
            return classes.astype(self._dtype)[:, None]
        return classes
