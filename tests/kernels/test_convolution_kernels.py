"""Convolution against PyTorch: every geometry, algorithm and batch size, forward and both gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.errors import KernelError, UnknownNameError
from ringlet.kernels import load
from ringlet.kernels.contract import CONV_ALGORITHMS


class Geometry(NamedTuple):
    channels: int
    filters: int
    size: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def output_size(self) -> tuple[int, int]:
        rows, columns = (
            (self.size[i] + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            for i in (0, 1)
        )
        return rows, columns

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, *self.kernel)

    @property
    def window(self) -> dict[str, object]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}

    @property
    def algorithms(self) -> list[str]:
        winograd_fits = (self.kernel, self.stride, self.dilation, self.groups) == ((3, 3), (1, 1), (1, 1), 1)
        return [name for name in CONV_ALGORITHMS if winograd_fits or not name.startswith("winograd")]

    def __str__(self) -> str:
        text = f"{self.channels}to{self.filters}-{self.size[0]}x{self.size[1]}-k{self.kernel[0]}x{self.kernel[1]}"
        for letter, pair, default in (("s", self.stride, 1), ("p", self.padding, 0), ("d", self.dilation, 1)):
            text += f"-{letter}{pair[0]}{pair[1]}" if pair != (default, default) else ""
        return text + (f"-g{self.groups}" if self.groups > 1 else "")


GEOMETRIES = [
    Geometry(1, 4, (9, 9)),  # simplecnn's first layer, smaller
    Geometry(4, 8, (8, 7)),
    Geometry(3, 16, (6, 6), padding=(1, 1)),
    Geometry(5, 3, (7, 5), padding=(1, 1)),
    Geometry(8, 17, (4, 4), padding=(1, 1)),
    Geometry(17, 5, (5, 6), padding=(1, 1)),
    Geometry(33, 16, (6, 5), padding=(1, 1)),
    Geometry(64, 33, (4, 4), padding=(1, 1)),
    Geometry(16, 64, (2, 2), padding=(1, 1)),
    Geometry(4, 4, (14, 14), padding=(1, 1)),
    Geometry(3, 5, (5, 5), padding=(2, 2)),  # more padding than "same"
    Geometry(4, 3, (10, 11), padding=(0, 1)),
    Geometry(3, 8, (8, 8), stride=(2, 2), padding=(1, 1)),
    Geometry(8, 5, (9, 7), stride=(2, 2), padding=(1, 1)),
    Geometry(4, 4, (10, 10), stride=(3, 3)),
    Geometry(4, 5, (11, 8), stride=(2, 1), padding=(1, 0)),
    Geometry(16, 33, (5, 5), kernel=(1, 1)),
    Geometry(33, 8, (7, 7), kernel=(1, 1), stride=(2, 2)),
    Geometry(64, 64, (2, 2), kernel=(1, 1)),
    Geometry(3, 4, (9, 9), kernel=(5, 5), padding=(2, 2)),
    Geometry(8, 5, (14, 14), kernel=(7, 7), stride=(2, 2), padding=(3, 3)),
    Geometry(3, 8, (14, 14), kernel=(11, 11), stride=(4, 4), padding=(2, 2)),
    Geometry(5, 4, (6, 9), kernel=(1, 7), padding=(0, 3)),
    Geometry(5, 4, (9, 6), kernel=(7, 1), padding=(3, 0)),
    Geometry(3, 3, (4, 4), kernel=(4, 4)),  # one output pixel
    Geometry(4, 5, (2, 2), kernel=(2, 2), stride=(2, 2)),
    Geometry(2, 3, (2, 3), kernel=(5, 5), padding=(2, 2)),  # the kernel is larger than the image
    Geometry(4, 4, (9, 10), padding=(2, 2), dilation=(2, 2)),
    Geometry(3, 5, (12, 9), stride=(2, 1), padding=(3, 1), dilation=(3, 2)),
    Geometry(8, 8, (6, 6), padding=(1, 1), groups=2),
    Geometry(6, 9, (7, 7), stride=(2, 2), padding=(1, 1), groups=3),
    Geometry(16, 8, (5, 5), kernel=(1, 1), groups=4),
    Geometry(8, 8, (7, 6), padding=(1, 1), groups=8),  # depthwise
    Geometry(17, 17, (8, 8), stride=(2, 2), padding=(1, 1), groups=17),
    Geometry(5, 10, (6, 6), kernel=(5, 5), padding=(2, 2), groups=5),  # depthwise, two filters per channel
    Geometry(4, 4, (9, 9), padding=(2, 2), dilation=(2, 2), groups=4),
]
LARGE = [  # several blocks of rows and lanes, and panels of three, two and one vectors
    Geometry(70, 9, (7, 40), padding=(1, 1)),
    Geometry(67, 17, (9, 31), stride=(2, 2), padding=(1, 1)),
    Geometry(97, 8, (6, 40), kernel=(1, 1)),
    Geometry(33, 5, (11, 40), padding=(2, 2), dilation=(2, 2)),
]
BATCH_SIZES = (7, 1, 17, 16)
CASES = [
    pytest.param(geometry, BATCH_SIZES[index % 4], algorithm, id=f"{geometry}-n{BATCH_SIZES[index % 4]}-{algorithm}")
    for index, geometry in enumerate(GEOMETRIES)
    for algorithm in geometry.algorithms
]
ALL_BATCHES = [
    pytest.param(geometry, algorithm, id=f"{geometry}-{algorithm}")
    for geometry in (Geometry(4, 8, (6, 6), padding=(1, 1)), Geometry(3, 5, (7, 7), stride=(2, 2), padding=(1, 1)))
    for algorithm in geometry.algorithms
]


def factor_of(algorithm: str) -> float:
    """Winograd trades accuracy for multiplications; its error has a test of its own."""
    return {"winograd_rows": 5.0, "winograd2": 3.0, "winograd4": 20.0}.get(algorithm, 1.0)


def check_forward(lab, g: Geometry, n: int, algorithm: str, *, with_bias: bool = True, relu: bool = False) -> None:
    x, weight = lab.activation(n, g.channels, *g.size), lab.parameter(*g.weight_shape)
    bias = lab.parameter(g.filters) if with_bias else None
    y = lab.output(n, g.filters, *g.output_size)
    lab.kernels.conv2d_forward(x, weight, bias, y, **g.window, relu=relu, algorithm=algorithm)
    expected = F.conv2d(
        lab.oracle(x, n), lab.oracle(weight), None if bias is None else lab.oracle(bias), g.stride, g.padding,
        g.dilation, g.groups,
    )  # fmt: skip
    lab.assert_activation(y, expected.relu() if relu else expected, n, factor=factor_of(algorithm))


def check_backward_data(lab, g: Geometry, n: int, algorithm: str, *, accumulate: bool) -> None:
    weight, dy = lab.parameter(*g.weight_shape), lab.gradient(n, g.filters, *g.output_size)
    before = lab.gradient(n, g.channels, *g.size)
    dx = before.copy() if accumulate else lab.output(n, g.channels, *g.size)
    lab.kernels.conv2d_backward_data(dy, weight, dx, **g.window, algorithm=algorithm, accumulate=accumulate)
    x = lab.oracle(np.zeros_like(before), n)
    F.conv2d(x, lab.oracle(weight), None, g.stride, g.padding, g.dilation, g.groups).backward(lab.constant(dy, n))
    expected = x.grad + lab.constant(before, n) if accumulate else x.grad
    lab.assert_gradient(dx, expected, n, factor=factor_of(algorithm))


def check_masked_backward_data(lab, g: Geometry, n: int, algorithm: str, *, accumulate: bool) -> None:
    weight, dy = lab.parameter(*g.weight_shape), lab.gradient(n, g.filters, *g.output_size)
    mask = np.maximum(lab.activation(n, g.channels, *g.size), 0)
    plain = lab.gradient(n, g.channels, *g.size)
    masked = plain.copy()
    lab.kernels.conv2d_backward_data(dy, weight, plain, **g.window, algorithm=algorithm, accumulate=accumulate)
    lab.kernels.conv2d_backward_data(dy, weight, masked, mask, **g.window, algorithm=algorithm, accumulate=accumulate)
    np.testing.assert_array_equal(masked, np.where(mask > 0, plain, 0))


def check_backward_weight(lab, g: Geometry, n: int, algorithm: str) -> None:
    x, dy = lab.activation(n, g.channels, *g.size), lab.gradient(n, g.filters, *g.output_size)
    dweight = lab.unwritten(*g.weight_shape)
    lab.kernels.conv2d_backward_weight(x, dy, dweight, **g.window, algorithm=algorithm)
    weight = lab.oracle(np.zeros(g.weight_shape))
    F.conv2d(lab.oracle(x, n), weight, None, g.stride, g.padding, g.dilation, g.groups).backward(lab.constant(dy, n))
    lab.assert_close(dweight, weight.grad, factor=factor_of(algorithm))


@pytest.mark.parametrize(("geometry", "num_samples", "algorithm"), CASES)
def test_forward_equals_torch(lab, geometry, num_samples, algorithm):
    check_forward(lab, geometry, num_samples, algorithm)


@pytest.mark.parametrize("accumulate", [True, False], ids=["add", "overwrite"])
@pytest.mark.parametrize(("geometry", "num_samples", "algorithm"), CASES[::7])
def test_a_mask_takes_the_data_gradient_through_a_relu(lab, geometry, num_samples, algorithm, accumulate):
    check_masked_backward_data(lab, geometry, num_samples, algorithm, accumulate=accumulate)


@pytest.mark.parametrize("algorithm", CONV_ALGORITHMS)
def test_a_fused_relu_passes_on_what_is_not_a_number(lab, algorithm):
    x, weight = np.full((4, 6, 6, 8), np.nan, lab.dtype), lab.parameter(4, 4, 3, 3)
    y = np.zeros((4, 6, 6, 8), lab.dtype)
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    lab.kernels.conv2d_forward(x, weight, None, y, **window, relu=True, algorithm=algorithm)
    assert np.isnan(y).all()


@pytest.mark.parametrize(("geometry", "num_samples", "algorithm"), CASES)
def test_data_gradient_equals_torch(lab, geometry, num_samples, algorithm):
    check_backward_data(lab, geometry, num_samples, algorithm, accumulate=False)


@pytest.mark.parametrize(("geometry", "num_samples", "algorithm"), CASES)
def test_data_gradient_is_added_when_asked(lab, geometry, num_samples, algorithm):
    check_backward_data(lab, geometry, num_samples, algorithm, accumulate=True)


@pytest.mark.parametrize(("geometry", "num_samples", "algorithm"), CASES)
def test_weight_gradient_equals_torch(lab, geometry, num_samples, algorithm):
    check_backward_weight(lab, geometry, num_samples, algorithm)


@pytest.mark.parametrize(
    ("geometry", "algorithm"), [(geometry, name) for geometry in LARGE for name in geometry.algorithms], ids=str
)
def test_weight_gradient_of_many_blocks_equals_torch(lab, geometry, algorithm):
    check_backward_weight(lab, geometry, 30, algorithm)


@pytest.mark.parametrize(("geometry", "algorithm"), ALL_BATCHES)
def test_every_batch_size_gives_the_same_as_torch(lab, n, geometry, algorithm):
    check_forward(lab, geometry, n, algorithm)
    check_backward_data(lab, geometry, n, algorithm, accumulate=False)
    check_backward_weight(lab, geometry, n, algorithm)


@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
@pytest.mark.parametrize("algorithm", CONV_ALGORITHMS)
def test_bias_and_relu_are_optional(lab, with_bias, relu, algorithm):
    check_forward(lab, Geometry(5, 9, (6, 7), padding=(1, 1)), 7, algorithm, with_bias=with_bias, relu=relu)


@pytest.mark.parametrize("algorithm", CONV_ALGORITHMS)
def test_a_sample_does_not_depend_on_the_rest_of_the_batch(lab, algorithm):
    g = Geometry(6, 9, (7, 7), padding=(1, 1))
    weight, many = lab.parameter(*g.weight_shape), lab.activation(16, g.channels, *g.size)
    few = np.ascontiguousarray(many[..., :8])
    results = []
    for x in (many, few):
        y = np.full((g.filters, *g.output_size, x.shape[-1]), np.nan, lab.dtype)
        lab.kernels.conv2d_forward(x, weight, None, y, **g.window, relu=False, algorithm=algorithm)
        results.append(y)
    lab.assert_close(results[0][..., :8], results[1], factor=factor_of(algorithm))


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "output_padding"),
    [(2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0), (3, 1, 1, 0), (3, 3, 0, 2), (5, 2, 2, 1)],
)
def test_backward_data_is_the_transposed_convolution(lab, n, kernel, stride, padding, output_padding):
    channels, filters, size = 5, 4, 5
    x, weight = lab.activation(n, channels, size, size), lab.parameter(channels, filters, kernel, kernel)
    out = (size - 1) * stride - 2 * padding + kernel + output_padding
    y = lab.output(n, filters, out, out)
    window = {"stride": (stride,) * 2, "padding": (padding,) * 2, "dilation": (1, 1), "groups": 1}
    lab.kernels.conv2d_backward_data(x, weight, y, **window, algorithm="direct", accumulate=False)
    expected = F.conv_transpose2d(lab.oracle(x, n), lab.oracle(weight), None, stride, padding, output_padding)
    lab.assert_activation(y, expected, n)


def test_gradients_of_a_transposed_convolution_come_from_the_same_kernels(lab, n):
    x, weight = lab.activation(n, 5, 4, 4), lab.parameter(5, 3, 3, 3)
    dy = lab.gradient(n, 3, 8, 8)
    window = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    dx, dweight = lab.output(n, 5, 4, 4), lab.unwritten(5, 3, 3, 3)
    lab.kernels.conv2d_forward(dy, weight, None, dx, **window, relu=False, algorithm="direct")
    lab.kernels.conv2d_backward_weight(dy, x, dweight, **window, algorithm="direct")
    x_torch, weight_torch = lab.oracle(x, n), lab.oracle(weight)
    F.conv_transpose2d(x_torch, weight_torch, None, 2, 1, 1).backward(lab.constant(dy, n))
    lab.assert_gradient(dx, x_torch.grad, n)
    lab.assert_close(dweight, weight_torch.grad)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", [(5,), (5, 3, 4)])
def test_bias_is_added_per_channel(lab, n, shape, relu):
    y, bias = lab.activation(n, *shape), lab.parameter(shape[0])
    expected = lab.constant(y, n) + lab.oracle(bias).reshape(-1, *[1] * (len(shape) - 1))
    lab.kernels.bias_forward(y, bias, relu=relu)
    lab.assert_activation(y, expected.relu() if relu else expected, n)


@pytest.mark.parametrize("shape", [(5,), (5, 3, 4), (33, 9, 7)])
def test_bias_gradient_is_the_sum_per_channel(lab, n, shape):
    dy, dbias = lab.gradient(n, *shape), lab.unwritten(shape[0])
    lab.kernels.bias_backward(dy, dbias)
    lab.assert_close(dbias, lab.samples(dy, n).swapaxes(0, 1).reshape(shape[0], -1).sum(axis=1), factor=5)


def test_channel_slices_of_a_joint_buffer_are_accepted(lab, n):
    """Concatenation is free: producers write into their slice, consumers read theirs."""
    g = Geometry(4, 5, (6, 6), padding=(1, 1))
    joint_in, joint_out = lab.activation(n, 9, *g.size), lab.output(n, 11, *g.output_size)
    weight = lab.parameter(*g.weight_shape)
    lab.kernels.conv2d_forward(joint_in[3:7], weight, None, joint_out[2:7], **g.window, relu=False, algorithm="direct")
    expected = F.conv2d(lab.oracle(joint_in[3:7], n), lab.oracle(weight), None, padding=1)
    lab.assert_activation(joint_out[2:7], expected, n)
    assert np.isnan(joint_out[:2]).all()
    assert np.isnan(joint_out[7:]).all()


@st.composite
def geometries(draw) -> Geometry:
    groups = draw(st.sampled_from([1, 1, 1, 2, 4]))
    channels, filters = groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 9))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    if draw(st.booleans()):
        kernel = (3, 3)
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 2)]))
    stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (3, 1)]))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    smallest = [max(1, dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) for i in (0, 1)]
    size = (smallest[0] + draw(st.integers(0, 8)), smallest[1] + draw(st.integers(0, 8)))
    return Geometry(channels, filters, size, kernel, stride, padding, dilation, groups)


@given(geometry=geometries(), num_samples=st.integers(1, 20), seed=st.integers(0, 2**16))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_any_geometry_equals_torch(make_lab, kernels, dtype, geometry, num_samples, seed):
    lab = make_lab(kernels, dtype, seed)
    for algorithm in geometry.algorithms:
        check_forward(lab, geometry, num_samples, algorithm)
        check_backward_data(lab, geometry, num_samples, algorithm, accumulate=bool(seed % 2))
        check_backward_weight(lab, geometry, num_samples, algorithm)


def run_reference(geometry: Geometry, algorithm: str) -> None:
    x, weight = np.zeros((geometry.channels, *geometry.size, 8)), np.zeros(geometry.weight_shape)
    y = np.zeros((geometry.filters, *geometry.output_size, 8))
    load("reference").conv2d_forward(x, weight, None, y, **geometry.window, relu=False, algorithm=algorithm)


def test_an_unknown_algorithm_is_an_error():
    with pytest.raises(UnknownNameError, match="Did you mean 'winograd"):
        run_reference(Geometry(2, 2, (5, 5)), "winograd3")


@pytest.mark.parametrize(
    "geometry", [Geometry(2, 2, (5, 5), stride=(2, 2)), Geometry(2, 2, (5, 5), kernel=(5, 5)), GEOMETRIES[-1]], ids=str
)
def test_winograd_where_it_does_not_apply_is_an_error(geometry):
    with pytest.raises(KernelError, match="needs a 3x3 kernel"):
        run_reference(geometry, "winograd4")
