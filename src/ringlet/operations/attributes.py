"""What an attribute of a node may be: one checker per kind, each turning a value into its canonical form.

A checker returns the canonical value (pairs and shapes as tuples, real numbers as floats) or raises
:class:`SpecError` with a message that reads well after "node 'conv1': stride ".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ringlet.errors import SpecError, show

Check = Callable[[Any], Any]
Shape = tuple[int, ...]

MAX_EXTENT = 1 << 20
"""Limit of one extent of an image, a window, a stride."""
MAX_CHANNELS = 1 << 28
"""Limit of channels and features."""
MAX_ELEMENTS = 1 << 34
"""Limit of the elements of one activation (per sample) and of one parameter."""


def by(pair: Iterable[int]) -> str:
    """``(5, 5)`` as ``5x5``."""
    return "x".join(str(extent) for extent in pair)


def is_integer(value: object) -> bool:
    """Whether ``value`` is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def integer(low: int, high: int) -> Check:
    """An integer in ``[low, high]``."""

    def check(value: Any) -> int:
        if not is_integer(value) or not low <= value <= high:
            raise SpecError(f"must be an integer from {low} to {high}, got {show(value)}")
        return int(value)

    return check


def pair(low: int, high: int = MAX_EXTENT) -> Check:
    """Two integers in ``[low, high]``: vertical, horizontal."""

    def check(value: Any) -> tuple[int, int]:
        items = tuple(value) if isinstance(value, (list, tuple)) else ()
        if len(items) != 2 or not all(is_integer(item) and low <= item <= high for item in items):
            raise SpecError(f"must be two integers from {low} to {high}, got {show(value)}")
        return items

    return check


def flag() -> Check:
    """True or false."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise SpecError(f"must be true or false, got {show(value)}")
        return value

    return check


def real(low: float, high: float, *, above: bool = False, below: bool = False) -> Check:
    """A finite number from ``low`` to ``high``; ``above`` and ``below`` exclude the ends."""
    interval = f"{'above' if above else 'at least'} {low:g} and {'below' if below else 'at most'} {high:g}"

    def check(value: Any) -> float:
        number = isinstance(value, float) or is_integer(value)
        inside = number and low <= value <= high and not (above and value == low) and not (below and value == high)
        if not inside or not math.isfinite(value):
            raise SpecError(f"must be a number {interval}, got {show(value)}")
        return float(value)

    return check


def choice(names: Iterable[str]) -> Check:
    """One of ``names``."""
    known = tuple(names)

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise SpecError(f"must be one of {', '.join(known)}; got {show(value)}")
        return value

    return check


def check_shape(value: Any) -> Shape:
    """The shape of one sample: ``(C, H, W)`` of an image or ``(F,)``."""
    items = tuple(value) if isinstance(value, (list, tuple)) else ()
    if len(items) not in (1, 3) or not all(is_integer(item) for item in items):
        raise SpecError(f"must be (channels, height, width) or (features,), all integers; got {show(value)}")
    check_extents(items)
    return items


def check_extents(shape: Shape) -> None:
    """Refuse extents that are not positive or beyond any sane size."""
    limits = (MAX_CHANNELS, MAX_EXTENT, MAX_EXTENT)
    if not all(1 <= extent <= limit for extent, limit in zip(shape, limits, strict=False)):
        raise SpecError(f"has an extent outside its range: got {show(shape)}, expected 1 to {by(limits[: len(shape)])}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise SpecError(f"{show(shape)} has more than {MAX_ELEMENTS:,} elements")
