"""Pooling as a loop over the taps of the window; windows are cut at the border of the image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import NO_ELEMENT, Floats, Pair
from ringlet.kernels.reference.windows import Tap, iterate_taps


def max_pool2d_forward(
    x: Floats,
    y: Floats,
    argmax: NDArray[np.uint16],
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    relu: bool = False,
) -> None:
    """Maximum of each window; ``argmax`` gets ``r * S + s`` of the first one, with ``relu`` only if it is positive."""
    rows = np.arange(y.shape[1]) * stride[0] - padding[0]
    columns = np.arange(y.shape[2]) * stride[1] - padding[1]
    # Begin with each window's first element inside the image, so that argmax never names padding.
    first_rows, first_columns = np.maximum(rows, 0)[:, None], np.maximum(columns, 0)
    y[...] = x[:, first_rows, first_columns]
    argmax[...] = ((first_rows - rows[:, None]) * kernel[1] + first_columns - columns)[..., None]
    for tap in _taps(x, y, kernel, stride, padding):
        candidate, best, where = x[:, *tap.inputs], y[:, *tap.outputs], argmax[:, *tap.outputs]
        better = candidate > best
        np.copyto(best, candidate, where=better)
        np.copyto(where, np.uint16(tap.row * kernel[1] + tap.column), where=better)
    if relu:
        argmax[y <= 0] = NO_ELEMENT
        np.maximum(y, 0, out=y)


def max_pool2d_backward(
    dy: Floats,
    argmax: NDArray[np.uint16],
    dx: Floats,
    sums: Floats | None = None,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    accumulate: bool,
) -> None:
    """Each ``dy`` goes to the element that ``argmax`` names; overlapping windows add up, ``sums`` gets the totals."""
    if not accumulate:
        dx[...] = 0
    for tap in _taps(dx, dy, kernel, stride, padding):
        chosen = argmax[:, *tap.outputs] == tap.row * kernel[1] + tap.column
        dx[:, *tap.inputs] += dy[:, *tap.outputs] * chosen
    if sums is not None:
        np.sum(dy, axis=(1, 2, 3), where=argmax != NO_ELEMENT, out=sums)


def avg_pool2d_forward(x: Floats, y: Floats, *, kernel: Pair, stride: Pair, padding: Pair) -> None:
    """Mean of each window over the elements inside ``x`` (padding is not counted)."""
    y[...] = 0
    for tap in _taps(x, y, kernel, stride, padding):
        y[:, *tap.outputs] += x[:, *tap.inputs]
    y /= _window_counts(x, y, kernel, stride, padding)


def avg_pool2d_backward(dy: Floats, dx: Floats, *, kernel: Pair, stride: Pair, padding: Pair, accumulate: bool) -> None:
    """Each ``dy / count`` goes to the elements of its window."""
    if not accumulate:
        dx[...] = 0
    share = dy / _window_counts(dx, dy, kernel, stride, padding)
    for tap in _taps(dx, dy, kernel, stride, padding):
        dx[:, *tap.inputs] += share[:, *tap.outputs]


def _taps(x: Floats, y: Floats, kernel: Pair, stride: Pair, padding: Pair) -> Iterator[Tap]:
    return iterate_taps((x.shape[1], x.shape[2]), (y.shape[1], y.shape[2]), kernel, stride, padding)


def _window_counts(x: Floats, y: Floats, kernel: Pair, stride: Pair, padding: Pair) -> Floats:
    """How many elements of each window lie inside the image, ``(P, Q, 1)`` in ``x``'s dtype."""
    counts: list[NDArray[np.int64]] = []
    for axis in (0, 1):
        start = np.arange(y.shape[axis + 1]) * stride[axis] - padding[axis]
        counts.append(np.minimum(start + kernel[axis], x.shape[axis + 1]) - np.maximum(start, 0))
    result: NDArray[Any] = np.multiply.outer(counts[0], counts[1])[..., None].astype(x.dtype)
    return result
