"""Sliding windows without copies: which outputs meet which inputs at one tap of a window.

A window at output ``p`` meets input ``p * stride - padding + tap * dilation``. For one tap, the outputs whose input is
inside the image are a range, and their inputs are a strided slice: convolution and pooling are loops over taps with
plain array arithmetic on the two views.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringlet.kernels.contract import Pair


class Tap(NamedTuple):
    """One position inside a window and the slices of input and output rows and columns that meet there."""

    row: int
    column: int
    inputs: tuple[slice, slice]
    outputs: tuple[slice, slice]


def tap_slices(size_in: int, size_out: int, stride: int, offset: int) -> tuple[slice, slice]:
    """The slices ``(inputs, outputs)`` of all ``p`` with ``0 <= p * stride + offset < size_in``, along one axis."""
    start = max(0, -(offset // stride))  # the first p with p * stride >= -offset
    stop = max(start, min(size_out, (size_in - 1 - offset) // stride + 1))
    first = start * stride + offset
    inputs = slice(first, first + (stop - start - 1) * stride + 1, stride) if stop > start else slice(0, 0)
    return inputs, slice(start, stop)


def iterate_taps(
    size_in: Pair, size_out: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)
) -> Iterator[Tap]:
    """All taps of a window in row-major order, leaving out those that meet no input at all."""
    columns = [
        tap_slices(size_in[1], size_out[1], stride[1], column * dilation[1] - padding[1]) for column in range(kernel[1])
    ]
    for row in range(kernel[0]):
        rows_in, rows_out = tap_slices(size_in[0], size_out[0], stride[0], row * dilation[0] - padding[0])
        for column, (columns_in, columns_out) in enumerate(columns):
            if rows_out.stop > rows_out.start and columns_out.stop > columns_out.start:
                yield Tap(row, column, (rows_in, columns_in), (rows_out, columns_out))
