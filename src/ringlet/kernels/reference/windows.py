"""Convolution and pooling as loops over the taps of a window, without copies.

A window at output ``p`` meets input ``p * stride - padding + tap * dilation``. For one tap, the outputs whose input is
inside the image are a range, and their inputs are a strided slice: plain array arithmetic on the two views. A
convolution is one matrix product of a weight slice with such a view per tap; groups are the leading axis of a stacked
product. Windows of pools are cut at the border of the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import KernelError, UnknownNameError
from ringlet.kernels.definitions import CONV_ALGORITHMS, NO_ELEMENT, Floats, Pair
from ringlet.kernels.reference.elements import bias_forward


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


# -- convolution -------------------------------------------------------------------------------------------------------
def conv2d_forward(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    y: Floats,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    relu: bool,
    algorithm: str,
) -> None:
    """``y[k,p,q,n] = bias[k] + sum_{c,r,s} weight[k,c,r,s] * x[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n]``.

    ``x (C, H, W, L)``, ``weight (K, C/groups, R, S)``, ``y (K, P, Q, L)``; zeros outside ``x``; ReLU on top if
    ``relu``. ``algorithm`` is one of ``CONV_ALGORITHMS``; implementations may ignore it but must accept every
    applicable one.
    """
    _check_algorithm(algorithm, weight, stride, dilation, groups)
    x_groups, y_groups, weight_groups = (_split_groups(array, groups) for array in (x, y, weight))
    y_groups[...] = 0
    for tap in _taps(x, y, weight, stride, padding, dilation):
        patch = x_groups[:, :, *tap.inputs]
        product = weight_groups[..., tap.row, tap.column] @ _matrix(patch)
        y_groups[:, :, *tap.outputs] += product.reshape(groups, -1, *patch.shape[2:])
    if bias is not None:
        bias_forward(y, bias, relu=relu)
    elif relu:
        np.maximum(y, 0, out=y)


def conv2d_backward_data(
    dy: Floats,
    weight: Floats,
    dx: Floats,
    mask: Floats | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    algorithm: str,
    accumulate: bool,
) -> None:
    """``dx[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n] += sum_k weight[k,c,r,s] * dy[k,p,q,n]`` for all r, s, p, q.

    The transpose of ``conv2d_forward`` in ``x``; with a bias added by the caller, the transposed convolution.

    With ``mask`` (shape of ``dx``) the result is zero where ``mask <= 0``: if ``x`` came out of a ReLU,
    ``mask = x`` takes the gradient back through it in the same pass.
    """
    _check_algorithm(algorithm, weight, stride, dilation, groups)
    dx_groups, dy_groups, weight_groups = (_split_groups(array, groups) for array in (dx, dy, weight))
    if not accumulate:
        dx_groups[...] = 0
    for tap in _taps(dx, dy, weight, stride, padding, dilation):
        patch = dy_groups[:, :, *tap.outputs]
        product = weight_groups[..., tap.row, tap.column].swapaxes(1, 2) @ _matrix(patch)
        dx_groups[:, :, *tap.inputs] += product.reshape(groups, -1, *patch.shape[2:])
    if mask is not None:
        dx *= mask > 0


def conv2d_backward_weight(
    x: Floats,
    dy: Floats,
    dweight: Floats,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    algorithm: str,
) -> None:
    """``dweight[k,c,r,s] = sum_{p,q,n} dy[k,p,q,n] * x[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n]``."""
    _check_algorithm(algorithm, dweight, stride, dilation, groups)
    x_groups, dy_groups, dweight_groups = (_split_groups(array, groups) for array in (x, dy, dweight))
    dweight_groups[...] = 0
    for tap in _taps(x, dy, dweight, stride, padding, dilation):
        gradient, patch = _matrix(dy_groups[:, :, *tap.outputs]), _matrix(x_groups[:, :, *tap.inputs])
        dweight_groups[..., tap.row, tap.column] = gradient @ patch.swapaxes(1, 2)


def _taps(x: Floats, y: Floats, weight: Floats, stride: Pair, padding: Pair, dilation: Pair) -> Iterator[Tap]:
    size_in, size_out, kernel = x.shape[1:3], y.shape[1:3], weight.shape[2:4]
    return iterate_taps(
        (size_in[0], size_in[1]), (size_out[0], size_out[1]), (kernel[0], kernel[1]), stride, padding, dilation
    )


def _split_groups(array: Floats, groups: int) -> Floats:
    """``(channels, …)`` as ``(groups, channels / groups, …)``: cutting one axis in two is always a view."""
    return array.reshape(groups, -1, *array.shape[1:])


def _matrix(patch: Floats) -> Floats:
    """``(groups, channels, rows, columns, lanes)`` as stacked matrices ``(groups, channels, everything else)``."""
    return patch.reshape(*patch.shape[:2], -1)


def _check_algorithm(algorithm: str, weight: Floats, stride: Pair, dilation: Pair, groups: int) -> None:
    """All algorithms mean the same sum; a wrong name or one that does not apply must still not pass in silence."""
    if algorithm not in CONV_ALGORITHMS:
        raise UnknownNameError("convolution algorithm", algorithm, CONV_ALGORITHMS)
    fits = (*weight.shape[2:], *stride, *dilation, groups) == (3, 3, 1, 1, 1, 1, 1)
    if algorithm.startswith("winograd") and not fits:
        raise KernelError(
            f"algorithm '{algorithm}' needs a 3x3 kernel, stride 1, dilation 1 and one group; got kernel "
            f"{weight.shape[2]}x{weight.shape[3]}, stride {stride}, dilation {dilation}, groups {groups}. "
            "Use 'direct' or 'gemm'"
        )


# -- pooling -----------------------------------------------------------------------------------------------------------
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
    """Maximum of each window (cut at the border); ``argmax`` (shape of ``y``) gets ``r * S + s`` of the first one.

    With ``relu``, where the maximum is not positive, ``y`` is zero and ``argmax`` is ``NO_ELEMENT``.
    """
    rows = np.arange(y.shape[1]) * stride[0] - padding[0]
    columns = np.arange(y.shape[2]) * stride[1] - padding[1]
    # Begin with each window's first element inside the image, so that argmax never names padding.
    first_rows, first_columns = np.maximum(rows, 0)[:, None], np.maximum(columns, 0)
    y[...] = x[:, first_rows, first_columns]
    argmax[...] = ((first_rows - rows[:, None]) * kernel[1] + first_columns - columns)[..., None]
    for tap in _pool_taps(x, y, kernel, stride, padding):
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
    """Each ``dy`` goes to the element that ``argmax`` names, if any; overlapping windows add up.

    ``sums`` (one per channel) gets what flows back in all, without what ``dx`` held before.
    """
    if not accumulate:
        dx[...] = 0
    for tap in _pool_taps(dx, dy, kernel, stride, padding):
        chosen = argmax[:, *tap.outputs] == tap.row * kernel[1] + tap.column
        dx[:, *tap.inputs] += dy[:, *tap.outputs] * chosen
    if sums is not None:
        np.sum(dy, axis=(1, 2, 3), where=argmax != NO_ELEMENT, out=sums)


def avg_pool2d_forward(x: Floats, y: Floats, *, kernel: Pair, stride: Pair, padding: Pair) -> None:
    """Mean of each window over the elements inside ``x`` (padding is not counted)."""
    y[...] = 0
    for tap in _pool_taps(x, y, kernel, stride, padding):
        y[:, *tap.outputs] += x[:, *tap.inputs]
    y /= _window_counts(x, y, kernel, stride, padding)


def avg_pool2d_backward(dy: Floats, dx: Floats, *, kernel: Pair, stride: Pair, padding: Pair, accumulate: bool) -> None:
    """Each ``dy / count`` goes to the elements of its window."""
    if not accumulate:
        dx[...] = 0
    share = dy / _window_counts(dx, dy, kernel, stride, padding)
    for tap in _pool_taps(dx, dy, kernel, stride, padding):
        dx[:, *tap.inputs] += share[:, *tap.outputs]


def _pool_taps(x: Floats, y: Floats, kernel: Pair, stride: Pair, padding: Pair) -> Iterator[Tap]:
    return iterate_taps((x.shape[1], x.shape[2]), (y.shape[1], y.shape[2]), kernel, stride, padding)


def _window_counts(x: Floats, y: Floats, kernel: Pair, stride: Pair, padding: Pair) -> Floats:
    """How many elements of each window lie inside the image, ``(P, Q, 1)`` in ``x``'s dtype."""
    counts: list[NDArray[np.int64]] = []
    for axis in (0, 1):
        start = np.arange(y.shape[axis + 1]) * stride[axis] - padding[axis]
        counts.append(np.minimum(start + kernel[axis], x.shape[axis + 1]) - np.maximum(start, 0))
    result: NDArray[Any] = np.multiply.outer(counts[0], counts[1])[..., None].astype(x.dtype)
    return result
