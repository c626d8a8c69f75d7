"""Padding of pools for frameworks that have rules of their own for windows that are cut at the border."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringlet.models.attributes import Shape

Pads = tuple[tuple[int, int], tuple[int, int]]
"""(before, behind) for rows and for columns."""


def pool_pads(attributes: Mapping[str, Any], source: Shape, shape: Shape) -> Pads:
    """Padding with which whole windows, rounded down, give ``shape``: ``ceil_mode`` is in the end padding.

    So no framework's own rule for windows that are cut at the border counts: that is where they disagree. The end
    padding is always smaller than the window, and smaller than the padding asked for where no window reaches that far.
    """
    rows, columns = (
        (padding, max((count - 1) * stride + kernel - extent - padding, 0))
        for extent, count, kernel, stride, padding in zip(
            source[1:], shape[1:], *(attributes[name] for name in ("kernel", "stride", "padding")), strict=True
        )
    )
    return rows, columns
