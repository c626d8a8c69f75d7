"""Test-time augmentation: the same images flipped or moved, whose outputs are averaged.

A view is a choice of rows and columns, so it applies to images and masks alike, and outputs per pixel are brought back
to where they belong. Pixels that a moved image does not show are averaged over the views that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ConfigError, UnknownNameError

SHIFT = 2
"""Pixels by which ``shift`` moves, each way."""


@dataclass(frozen=True)
class View:
    """Rows and columns that are shown, in order; flipped or moved, edges repeated."""

    flip_rows: bool = False
    flip_columns: bool = False
    down: int = 0
    right: int = 0

    def of_images(self, values: NDArray[Any], axes: tuple[int, int] = (-2, -1)) -> NDArray[Any]:
        """The view of images or masks; ``axes`` are those of rows and columns."""
        for axis, flip, move in zip(axes, (self.flip_rows, self.flip_columns), (self.down, self.right), strict=True):
            size = values.shape[axis]
            places = np.clip(np.arange(size) - move, 0, size - 1)
            values = values.take(places[::-1] if flip else places, axis=axis) if flip or move else values
        return values

    def back(self, outputs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Outputs per pixel ``(n, K, H, W)`` of a view where they belong, and which pixels they cover ``(H, W)``."""
        shown = []
        for axis, flip, move in ((-2, self.flip_rows, self.down), (-1, self.flip_columns, self.right)):
            size = outputs.shape[axis]
            places = np.arange(size) + move
            inside = (places >= 0) & (places < size)
            places = np.clip(places, 0, size - 1)
            outputs = outputs.take(size - 1 - places if flip else places, axis=axis)
            shown.append(inside)
        return outputs, np.outer(*shown).astype(np.float32)


_SAME, _MIRRORED = View(), View(flip_columns=True)
VIEWS: dict[str, tuple[View, ...]] = {
    "flip": (_SAME, _MIRRORED),
    "flips": (_SAME, _MIRRORED, View(flip_rows=True), View(flip_rows=True, flip_columns=True)),
    "shift": (_SAME, View(down=SHIFT), View(down=-SHIFT), View(right=SHIFT), View(right=-SHIFT)),
}
"""``flip`` mirrors left and right, ``flips`` also up and down, ``shift`` moves by two pixels each way."""
NAMES = tuple(VIEWS)


def views_of(name: str, input_shape: tuple[int, ...]) -> tuple[View, ...]:
    """The views of a name; inputs that are no images, or too small, are refused."""
    if name not in VIEWS:
        raise UnknownNameError("test-time augmentation", name, NAMES)
    if len(input_shape) != 3:
        raise ConfigError(
            f"test-time augmentation '{name}': inputs have shape {input_shape}, expected images (C, H, W)"
        )
    if name == "shift" and min(input_shape[1:]) <= 2 * SHIFT:
        raise ConfigError(
            f"test-time augmentation 'shift' moves by {SHIFT} pixels: images of {input_shape[1:]} are small"
        )
    return VIEWS[name]


def averaged(
    views: Iterable[View],
    inputs: NDArray[Any],
    run: Callable[[View, NDArray[Any]], NDArray[Any]],
    axes: tuple[int, int],
) -> NDArray[Any]:
    """The mean of the outputs ``run`` gives for all views of ``inputs``, added up in their order."""
    total: NDArray[Any] | None = None
    weight: NDArray[Any] | float = 0.0
    for view in views:
        outputs = run(view, np.ascontiguousarray(view.of_images(inputs, axes)))
        covered: NDArray[Any] | float = 1.0
        if outputs.ndim == 4:
            outputs, covered = view.back(outputs)
        total = outputs * np.asarray(covered, outputs.dtype) if total is None else total + outputs * covered
        weight = weight + covered
    assert total is not None
    return np.asarray(total / np.asarray(weight, total.dtype))
