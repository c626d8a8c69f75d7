"""Pooling against PyTorch: overlapping, padded, cut windows, and both gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringlet.kernels.contract import NO_ELEMENT


class Pool(NamedTuple):
    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil_mode: bool = False

    @property
    def window(self) -> dict[str, object]:
        return {"kernel": self.kernel, "stride": self.stride, "padding": self.padding}

    @property
    def torch_arguments(self) -> tuple[object, ...]:
        return self.kernel, self.stride, self.padding

    def output_size(self) -> tuple[int, int]:
        sizes = []
        for i in (0, 1):
            room = self.size[i] + 2 * self.padding[i] - self.kernel[i]
            count = (-(-room // self.stride[i]) if self.ceil_mode else room // self.stride[i]) + 1
            if self.ceil_mode and (count - 1) * self.stride[i] >= self.size[i] + self.padding[i]:
                count -= 1  # a window that would begin in the right padding
            sizes.append(count)
        return sizes[0], sizes[1]


POOLS = [
    Pool(4, (8, 8), (2, 2), (2, 2)),
    Pool(3, (7, 5), (2, 2), (2, 2)),  # the last row and column are not pooled
    Pool(3, (7, 5), (2, 2), (2, 2), ceil_mode=True),  # ... or pooled by cut windows
    Pool(5, (9, 9), (3, 3), (2, 2)),  # overlapping
    Pool(5, (8, 9), (3, 3), (2, 2), (1, 1)),
    Pool(2, (8, 8), (3, 3), (2, 2), (1, 1), ceil_mode=True),
    Pool(2, (6, 6), (3, 3), (1, 1), (1, 1)),
    Pool(17, (4, 6), (2, 3), (2, 1), (1, 1)),
    Pool(3, (7, 7), (7, 7), (1, 1)),  # global
    Pool(1, (10, 7), (3, 2), (4, 3)),  # gaps between windows
    Pool(33, (2, 2), (2, 2), (2, 2)),
    Pool(2, (5, 5), (1, 1), (2, 2)),
]
pools = pytest.mark.parametrize("pool", POOLS, ids=lambda p: str(tuple(p)).replace(" ", ""))
accumulates = pytest.mark.parametrize("accumulate", [True, False], ids=["add", "overwrite"])


def max_forward(lab, pool: Pool, x):
    shape = (pool.channels, *pool.output_size(), x.shape[-1])
    y, argmax = np.full(shape, np.nan, lab.dtype), np.full(shape, 65535, np.uint16)
    lab.kernels.max_pool2d_forward(x, y, argmax, **pool.window)
    return y, argmax


def check_max(lab, pool: Pool, n: int, *, accumulate: bool) -> None:
    x, dy = lab.activation(n, pool.channels, *pool.size), lab.gradient(n, pool.channels, *pool.output_size())
    x_torch = lab.oracle(x, n)
    y_torch = F.max_pool2d(x_torch, *pool.torch_arguments, ceil_mode=pool.ceil_mode)
    y_torch.backward(lab.constant(dy, n))
    y, argmax = max_forward(lab, pool, x)
    lab.assert_activation(y, y_torch, n, factor=0.1)
    before = lab.gradient(n, pool.channels, *pool.size)
    dx = before.copy() if accumulate else np.full_like(before, np.nan)
    sums = np.full(pool.channels, np.nan, lab.dtype)
    lab.kernels.max_pool2d_backward(dy, argmax, dx, sums, **pool.window, accumulate=accumulate)
    lab.assert_gradient(dx, x_torch.grad + lab.constant(before, n) if accumulate else x_torch.grad, n)
    lab.assert_close(sums, x_torch.grad.sum((0, 2, 3)))


def check_average(lab, pool: Pool, n: int, *, accumulate: bool) -> None:
    x, dy = lab.activation(n, pool.channels, *pool.size), lab.gradient(n, pool.channels, *pool.output_size())
    x_torch = lab.oracle(x, n)
    y_torch = F.avg_pool2d(x_torch, *pool.torch_arguments, ceil_mode=pool.ceil_mode, count_include_pad=False)
    y_torch.backward(lab.constant(dy, n))
    y = lab.output(n, pool.channels, *pool.output_size())
    lab.kernels.avg_pool2d_forward(x, y, **pool.window)
    lab.assert_activation(y, y_torch, n)
    before = lab.gradient(n, pool.channels, *pool.size)
    dx = before.copy() if accumulate else np.full_like(before, np.nan)
    lab.kernels.avg_pool2d_backward(dy, dx, **pool.window, accumulate=accumulate)
    lab.assert_gradient(dx, x_torch.grad + lab.constant(before, n) if accumulate else x_torch.grad, n)


@pools
@accumulates
def test_max_pooling_equals_torch(lab, pool, accumulate):
    check_max(lab, pool, 7, accumulate=accumulate)


@pools
@accumulates
def test_average_pooling_equals_torch(lab, pool, accumulate):
    check_average(lab, pool, 7, accumulate=accumulate)


@accumulates
def test_every_batch_size_is_pooled_as_by_torch(lab, n, accumulate):
    pool = Pool(5, (8, 9), (3, 3), (2, 2), (1, 1))
    check_max(lab, pool, n, accumulate=accumulate)
    check_average(lab, pool, n, accumulate=accumulate)


@pools
def test_argmax_names_the_first_maximum_inside_the_image(lab, pool):
    """Few distinct values make ties; all are negative, so padding as zero would win if it took part."""
    x = lab.rng.integers(-3, 0, (pool.channels, *pool.size, 8)).astype(lab.dtype)
    y, argmax = max_forward(lab, pool, x)
    for c, p, q, lane in np.ndindex(*y.shape):
        top, left = p * pool.stride[0] - pool.padding[0], q * pool.stride[1] - pool.padding[1]
        inside = [
            (x[c, top + r, left + s, lane], r * pool.kernel[1] + s)
            for r in range(pool.kernel[0])
            for s in range(pool.kernel[1])
            if 0 <= top + r < pool.size[0] and 0 <= left + s < pool.size[1]
        ]
        best = max(value for value, _ in inside)
        assert y[c, p, q, lane] == best
        assert argmax[c, p, q, lane] == next(tap for value, tap in inside if value == best)


@pytest.mark.parametrize("value", [-np.inf, -3.4e38])
def test_the_lowest_values_are_still_inside_the_image(lab, value):
    pool = Pool(1, (3, 3), (3, 3), (2, 2), (1, 1))
    x = np.full((1, 3, 3, 8), value, lab.dtype)
    y, argmax = max_forward(lab, pool, x)
    assert (y == x[0, 0, 0, 0]).all()
    assert argmax[0, :, :, 0].tolist() == [[4, 3], [1, 0]]


@st.composite
def random_pools(draw) -> Pool:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = (draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2)))
    stride = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    size = (kernel[0] + draw(st.integers(0, 6)), kernel[1] + draw(st.integers(0, 6)))
    return Pool(draw(st.integers(1, 5)), size, kernel, stride, padding, draw(st.booleans()))


@given(pool=random_pools(), num_samples=st.integers(1, 20), seed=st.integers(0, 2**16))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_any_pooling_equals_torch(make_lab, kernels, dtype, pool, num_samples, seed):
    assume(min(pool.output_size()) > 0)
    lab = make_lab(kernels, dtype, seed)
    check_max(lab, pool, num_samples, accumulate=bool(seed % 2))
    check_average(lab, pool, num_samples, accumulate=bool(seed % 2))


@pools
def test_a_relu_on_top_of_the_maximum_equals_torch(lab, n, pool):
    x, dy = lab.activation(n, pool.channels, *pool.size), lab.gradient(n, pool.channels, *pool.output_size())
    x -= 1  # so that many windows have no positive element
    x_torch = lab.oracle(x, n)
    y_torch = F.max_pool2d(x_torch.relu(), *pool.torch_arguments, ceil_mode=pool.ceil_mode)
    y_torch.backward(lab.constant(dy, n))
    y = np.full((pool.channels, *pool.output_size(), x.shape[-1]), np.nan, lab.dtype)
    argmax = np.zeros(y.shape, np.uint16)
    lab.kernels.max_pool2d_forward(x, y, argmax, **pool.window, relu=True)
    lab.assert_activation(y, y_torch, n, factor=0.1)
    np.testing.assert_array_equal(argmax == NO_ELEMENT, y == 0)
    dx, sums = np.full(x.shape, np.nan, lab.dtype), np.full(pool.channels, np.nan, lab.dtype)
    lab.kernels.max_pool2d_backward(dy, argmax, dx, sums, **pool.window, accumulate=False)
    lab.assert_gradient(dx, x_torch.grad, n)
    lab.assert_close(sums, x_torch.grad.sum((0, 2, 3)))
