"""Convolution as a sum over taps: one matrix product of a weight slice with a shifted, strided view per ``(r, s)``.

Groups are the leading axis of a stacked matrix product; a depthwise convolution has one channel per group.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringlet.errors import KernelError, UnknownNameError
from ringlet.kernels.contract import CONV_ALGORITHMS, Floats, Pair
from ringlet.kernels.reference.windows import Tap, iterate_taps


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
    """``y[k,p,q,n] = bias[k] + sum_{c,r,s} weight[k,c,r,s] * x[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n]``."""
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
    """``dx[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n] += sum_k weight[k,c,r,s] * dy[k,p,q,n]`` for all r, s, p, q."""
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


def bias_forward(y: Floats, bias: Floats, *, relu: bool) -> None:
    """``y[k, …] += bias[k]`` in place, ReLU on top if ``relu``."""
    y += bias.reshape(-1, *[1] * (y.ndim - 1))
    if relu:
        np.maximum(y, 0, out=y)


def bias_backward(dy: Floats, dbias: Floats) -> None:
    """``dbias[k] = sum(dy[k, …])``."""
    dbias[...] = dy.reshape(len(dy), -1).sum(axis=1)


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
