"""What the pixel values of a mask mean: object or background, or one of several classes.

One class: a binary mask, float32 ``(1, H, W)`` of 0 and 1. Several: int64 ``(H, W)`` with the class of every pixel, the
background being class 0. Two classes are background and object, whatever two values stand for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError

_LIGHT = 128
_SHOWN = 6


@dataclass(frozen=True)
class MaskMeaning:
    """How many classes masks hold; ``asked`` says that the user gave the number."""

    num_classes: int = 1
    asked: bool = False

    @classmethod
    def of(cls, num_classes: int | None) -> MaskMeaning:
        """The meaning for a number of classes that may not have been given: then object or background."""
        return cls() if num_classes is None else cls(num_classes, asked=True)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, as far as they are known."""
        return {1: ("object",), 2: ("background", "object")}.get(self.num_classes, ())

    def target_shape(self, height: int, width: int) -> tuple[int, ...]:
        """Shape of one target."""
        return (1, height, width) if self.num_classes == 1 else (height, width)

    @property
    def dtype(self) -> type[np.float32] | type[np.int64]:
        """Type of the targets."""
        return np.float32 if self.num_classes == 1 else np.int64

    def target(self, values: NDArray[Any], what: object, *, indices: bool = False) -> NDArray[Any]:
        """The target made of a mask's values ``(H, W)``; ``indices``: they are certainly not grey values."""
        if self.num_classes == 1 and not self.asked:
            _refuse_classes(values, what, indices=indices)
        if self.num_classes <= 2:
            is_object = values != 0 if indices else binarize(values)
            return is_object[None].astype(np.float32) if self.num_classes == 1 else is_object.astype(np.int64)
        return self._classes(values, what)

    def _classes(self, values: NDArray[Any], what: object) -> NDArray[np.int64]:
        classes = values.astype(np.int64)
        if values.dtype.kind == "f" and (classes != values).any():
            raise DataError(f"{what}: a mask with fractions: expected the class of every pixel, a whole number")
        wrong = classes[(classes < 0) | (classes >= self.num_classes)]
        if wrong.size:
            raise DataError(
                f"{what}: {wrong.size:,} pixels have values such as {wrong.flat[0]}: expected classes 0 … "
                f"{self.num_classes - 1}, as num_classes = {self.num_classes} says"
            )
        return classes


BINARY = MaskMeaning()
"""Object or background; masks that look like several classes are refused."""


def binarize(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Object or background: floating values above one half; grey values from 128 up; class indices other than 0."""
    if mask.dtype.kind == "f":
        return np.asarray(mask > 0.5)
    if mask.dtype.kind == "b" or mask.size == 0:
        return mask.astype(bool)
    return np.asarray(mask >= (_LIGHT if mask.max() >= _LIGHT else 1))


def _refuse_classes(values: NDArray[Any], what: object, *, indices: bool) -> None:
    """Refuse to merge what looks like several classes into one object, unless that was asked for."""
    if values.dtype.kind not in "iu" or values.size == 0 or (not indices and values.max() >= _LIGHT):
        return
    found = np.unique(values)
    if len(found) > 2:
        shown = ", ".join(map(str, found[:_SHOWN])) + (" …" if len(found) > _SHOWN else "")
        raise DataError(
            f"{what}: a mask with {len(found)} different values ({shown}): is it one of several classes? Give "
            f"num_classes, at least {int(found[-1]) + 1}, to learn them, or num_classes = 1 to take all but 0 as object"
        )
