"""Dense layers, data movement and sums against PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812

SHAPES = [(1, 1, 1), (7, 5, 3), (17, 3, 17), (64, 128, 10), (1, 128, 10), (16, 33, 64), (7, 300, 7), (64, 64, 64)]

shapes = pytest.mark.parametrize(("num_samples", "num_inputs", "num_outputs"), SHAPES)


@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
def test_bias_and_relu_of_a_dense_layer_are_optional(lab, n, relu, with_bias):
    check_forward(lab, n, 33, 17, relu=relu, with_bias=with_bias)


@shapes
def test_dense_forward_equals_torch(lab, num_samples, num_inputs, num_outputs):
    check_forward(lab, num_samples, num_inputs, num_outputs, relu=False, with_bias=True)


def check_forward(lab, n: int, num_inputs: int, num_outputs: int, *, relu: bool, with_bias: bool) -> None:
    x, weight = lab.activation(n, num_inputs), lab.parameter(num_outputs, num_inputs)
    bias = lab.parameter(num_outputs) if with_bias else None
    y = lab.output(n, num_outputs)
    lab.kernels.dense_forward(x, weight, bias, y, relu=relu)
    expected = F.linear(lab.oracle(x, n), lab.oracle(weight), None if bias is None else lab.oracle(bias))
    lab.assert_activation(y, expected.relu() if relu else expected, n)


@pytest.mark.parametrize("accumulate", [True, False])
@shapes
def test_dense_data_gradient_equals_torch(lab, num_samples, num_inputs, num_outputs, accumulate):
    weight, dy = lab.parameter(num_outputs, num_inputs), lab.gradient(num_samples, num_outputs)
    before = lab.gradient(num_samples, num_inputs)
    dx = before.copy() if accumulate else lab.output(num_samples, num_inputs)
    lab.kernels.dense_backward_data(dy, weight, dx, accumulate=accumulate)
    expected = lab.constant(dy, num_samples) @ lab.oracle(weight)
    lab.assert_gradient(dx, expected + lab.constant(before, num_samples) if accumulate else expected, num_samples)


@shapes
def test_dense_weight_gradient_equals_torch(lab, num_samples, num_inputs, num_outputs):
    x, dy = lab.activation(num_samples, num_inputs), lab.gradient(num_samples, num_outputs)
    dweight = lab.unwritten(num_outputs, num_inputs)
    lab.kernels.dense_backward_weight(x, dy, dweight)
    weight = lab.oracle(np.zeros((num_outputs, num_inputs)))
    F.linear(lab.oracle(x, num_samples), weight).backward(lab.constant(dy, num_samples))
    lab.assert_close(dweight, weight.grad)


@pytest.mark.parametrize("shape", [(3,), (3, 5, 4), (1, 28, 28)])
@pytest.mark.parametrize("source", ["floating", "uint8"])
def test_pack_moves_samples_innermost_and_clears_padding_lanes(lab, n, shape, source):
    samples = lab.rng.integers(0, 256, (n, *shape)).astype(np.uint8 if source == "uint8" else lab.dtype)
    out = lab.output(n, *shape)
    lab.kernels.pack(samples, out)
    np.testing.assert_array_equal(out[..., :n], np.moveaxis(samples, 0, -1))
    assert not out[..., n:].any()


@pytest.mark.parametrize("shape", [(3,), (3, 5, 4), (1, 28, 28)])
def test_unpack_drops_padding_lanes(lab, n, shape):
    activations, out = lab.activation(n, *shape), lab.unwritten(n, *shape)
    lab.kernels.unpack(activations, out)
    np.testing.assert_array_equal(out, np.moveaxis(activations[..., :n], -1, 0))


def test_unpack_undoes_pack(lab, n):
    samples, middle, out = lab.parameter(n, 2, 3, 5), lab.output(n, 2, 3, 5), lab.unwritten(n, 2, 3, 5)
    lab.kernels.pack(samples, middle)
    lab.kernels.unpack(middle, out)
    np.testing.assert_array_equal(out, samples)


@pytest.mark.parametrize("shape", [(1,), (13,), (3, 5, 8)])
@pytest.mark.parametrize("target", ["other", "first", "second"])
def test_add_may_write_into_an_operand(lab, shape, target):
    a, b = lab.parameter(*shape), lab.parameter(*shape)
    expected = a + b
    out = {"other": lab.unwritten(*shape), "first": a, "second": b}[target]
    lab.kernels.add(a, b, out)
    np.testing.assert_array_equal(out, expected)
