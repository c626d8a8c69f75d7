"""What the pixels of a mask mean: object or background, or classes; what is neither is refused with what was found.

Without a number of classes a mask holds an object and its background: 0 and one other value. Soft edges are fine, areas
of further values (0, 127 and 255, say) are not: an *area* is a place of 3 x 3 equal pixels, which edges do not have.
With ``num_classes = K`` the values are the classes 0 … K-1, or K grey values evenly spread from 0 to 255. With
``num_classes = 1`` all that is light, or not 0 where nothing is, is object, whatever it may have meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError

LIGHT = 128
_SHOWN = 6
_MAX_SPREAD = 16
"""Up to this many classes, evenly spread grey values are larger than any class and cannot be taken for one."""
_SAME_GREY, _SAME_COLOUR = 16, 48
"""Values this near to each other are one value with soft edges or the noise of compression."""
_SOFT = slice(32, 224)
_SOLID_SHARE = 0.25
"""So many of the pixels of a value lie inside its areas; wide soft edges have some by chance, but fewer."""

Pieces = Callable[[], Iterable[NDArray[Any]]]
"""The values of a mask, some rows at a time, as often as they are asked for."""


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

    @property
    def merges(self) -> bool:
        """Whether all that is not background is one object, by the user's wish."""
        return self.num_classes == 1 and self.asked

    def target_shape(self, height: int, width: int) -> tuple[int, ...]:
        """Shape of one target."""
        return (1, height, width) if self.num_classes == 1 else (height, width)

    @property
    def dtype(self) -> type[np.float32] | type[np.int64]:
        """Type of the targets."""
        return np.float32 if self.num_classes == 1 else np.int64

    def check(self, pieces: Pieces, what: object, *, indices: bool = False, lossy: bool = False) -> None:
        """Refuse a mask of more than object and background where these are expected.

        ``indices``: the values are certainly not grey; ``lossy``: they may have the noise of compression.
        """
        if self.num_classes > 2 or self.merges:
            return
        found = sorted({value for piece in pieces() for value in _distinct(piece).tolist()})
        if not found:
            return
        if indices or found[-1] < LIGHT:
            if len(found) > 2:
                raise DataError(_several_classes(found, what))
        elif len(found) > 2 or found[0] > _SAME_GREY:
            _check_levels(_levels(pieces, found, lossy=lossy), what)

    def check_colours(self, pieces: Pieces, what: object) -> None:
        """Refuse a mask in colours, pieces (H, W, 3), unless it is black and one other; ``merges`` takes all."""
        if self.merges:
            return
        colours = _solid_colours(pieces())
        shown = ", ".join(f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colours[:_SHOWN])
        shown += " …" if len(colours) > _SHOWN else ""
        if self.num_classes > 2:
            raise DataError(
                f"{what}: a mask in colours ({shown}): several classes are read from palette images or grey values, "
                "class k as k. Store the masks like that"
            )
        if len(colours) > 2 or (len(colours) == 2 and max(colours[0]) > _SAME_COLOUR):
            raise DataError(
                f"{what}: a mask in colours ({shown}): expected black for the background and one other colour. Several "
                "classes are read from palette images or grey values, class k as k, with num_classes; num_classes = 1 "
                "takes every colour but black as object"
            )

    def target(
        self, values: NDArray[Any], what: object, *, indices: bool = False, checked: bool = False
    ) -> NDArray[Any]:
        """The target made of a mask's values ``(H, W)``, which :meth:`check` has seen or will see here."""
        if not checked:
            self.check(lambda: (values,), what, indices=indices)
        if self.num_classes <= 2:
            is_object = values != 0 if indices else binarize(values)
            return is_object[None].astype(np.float32) if self.num_classes == 1 else is_object.astype(np.int64)
        return self._classes(values, what, indices=indices)

    def _classes(self, values: NDArray[Any], what: object, *, indices: bool) -> NDArray[np.int64]:
        classes = values.astype(np.int64)
        if values.dtype.kind == "f" and (classes != values).any():
            raise DataError(f"{what}: a mask with fractions: expected the class of every pixel, a whole number")
        wrong = classes[(classes < 0) | (classes >= self.num_classes)]
        if not wrong.size:
            return classes
        found, spread = _distinct(classes).tolist(), {} if indices else spread_greys(self.num_classes)
        if all(value in spread for value in found):
            return np.array([spread.get(value, 0) for value in range(256)], np.int64)[classes]
        greys = [value for value in spread if value == 255 * spread[value] // (self.num_classes - 1)]
        or_spread = f", or the grey values {_shown(greys, len(greys))}" if spread else ""
        raise DataError(
            f"{what}: {wrong.size:,} pixels have values such as {wrong.flat[0]}: expected classes 0 … "
            f"{self.num_classes - 1}{or_spread}, as num_classes = {self.num_classes} says; the mask holds "
            f"{_shown(found)}"
        )


BINARY = MaskMeaning()
"""Object or background; masks that look like several classes are refused."""


def spread_greys(num_classes: int) -> dict[int, int]:
    """Which class a grey value stands for if the classes are evenly spread from 0 to 255, rounded down or up."""
    if not 3 <= num_classes <= _MAX_SPREAD:
        return {}
    last = num_classes - 1
    return {grey: index for index in range(num_classes) for grey in (255 * index // last, -(-255 * index // last))}


def binarize(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Object or background: floating values above one half; grey values from 128 up; class indices other than 0."""
    if mask.dtype.kind == "f":
        return np.asarray(mask > 0.5)
    if mask.dtype.kind == "b" or mask.size == 0:
        return mask.astype(bool)
    return np.asarray(mask >= (LIGHT if mask.max() >= LIGHT else 1))


# -- what a mask holds ------------------------------------------------------------------------------------------------
def _distinct(values: NDArray[Any]) -> NDArray[np.int64]:
    """The different whole numbers in ``values``, sorted; none where there are fractions, which mean shares."""
    if values.dtype == np.uint8:
        return np.flatnonzero(np.bincount(values.ravel(), minlength=256))
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and (values == np.rint(values)).all()):
        return np.empty(0, np.int64)
    return np.unique(values).astype(np.int64)


def _count(values: NDArray[Any]) -> dict[int, int]:
    """How often each value occurs."""
    if values.dtype == np.uint8:  # the quick way
        return {value: count for value, count in enumerate(np.bincount(values.ravel()).tolist()) if count}
    found, counts = np.unique(values.astype(np.int64), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _solid(values: NDArray[Any]) -> NDArray[Any]:
    """The values of all pixels in the middle of 3 x 3 equal ones."""
    if min(values.shape) < 3:
        return values[:0].ravel()
    middle = values[:, 1:-1]
    rows = (middle == values[:, :-2]) & (middle == values[:, 2:])
    inner = middle[1:-1]
    equal = rows[:-2] & rows[1:-1] & rows[2:] & (inner == middle[:-2]) & (inner == middle[2:])
    return np.asarray(inner[equal])


def _levels(pieces: Pieces, found: list[int], *, lossy: bool) -> list[int]:
    """The values that areas of the mask have; near ones count as one where edges are soft or values have noise."""
    all_counts, solid_counts = Counter[int](), Counter[int]()
    for piece in pieces():
        for values, counts in ((piece, all_counts), (_solid(piece), solid_counts)):
            counts.update(_count(values))
    solid = sorted(value for value, count in solid_counts.items() if count >= _SOLID_SHARE * all_counts[value])
    between = [value for value in found if _SOFT.start <= value < _SOFT.stop]
    num_solid = len(set(between) & set(solid))
    if not lossy and len(between) - num_solid <= num_solid:
        return solid
    return [value for before, value in zip([None, *solid], solid, strict=False) if _is_apart(before, value)]


def _is_apart(before: int | None, value: int) -> bool:
    return before is None or value - before > _SAME_GREY


def _solid_colours(pieces: Iterable[NDArray[Any]]) -> list[tuple[int, int, int]]:
    """The colours that areas of the mask have, the darkest first; similar ones count as one."""
    packed: set[int] = set()
    for piece in pieces:
        wide = piece.astype(np.int32)
        packed.update(np.unique(_solid(wide[:, :, 0] << 16 | wide[:, :, 1] << 8 | wide[:, :, 2])).tolist())
    rest = np.array([(value >> 16, value >> 8 & 255, value & 255) for value in packed], np.int64).reshape(-1, 3)
    rest = rest[np.argsort(rest.max(axis=1), kind="stable")]
    colours: list[tuple[int, int, int]] = []
    while len(rest) and len(colours) <= _SHOWN:
        red, green, blue = rest[0].tolist()
        colours.append((red, green, blue))
        rest = rest[np.abs(rest - rest[0]).max(axis=1) > _SAME_COLOUR]
    return colours


def _check_levels(levels: list[int], what: object) -> None:
    if len(levels) < 2 or (len(levels) == 2 and levels[0] <= _SAME_GREY):
        return
    raise DataError(
        f"{what}: a mask with areas of {len(levels)} different values ({_shown(levels)}): expected 0 for the "
        "background and one other value. Give num_classes = K to learn K classes, stored as 0 … K-1 or as K "
        "grey values evenly spread from 0 to 255, or num_classes = 1 to take values from 128 up as object"
    )


def _several_classes(found: list[int], what: object) -> str:
    return (
        f"{what}: a mask with {len(found)} different values ({_shown(found)}): is it one of several classes? Give "
        f"num_classes, at least {found[-1] + 1}, to learn them, or num_classes = 1 to take all but 0 as object"
    )


def _shown(values: Iterable[int], limit: int = _SHOWN) -> str:
    values = list(values)
    return ", ".join(map(str, values[:limit])) + (" …" if len(values) > limit else "")
