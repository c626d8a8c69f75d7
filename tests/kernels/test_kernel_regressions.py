"""Kernel-level mistakes that other libraries of this kind made: each has its test here so that it cannot come back."""

from __future__ import annotations

import numpy as np
import pytest

WINDOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 4}


def apply(lab, kind: str, x):
    y, dx = np.empty_like(x), np.empty_like(x)
    lab.activate(kind, x, y, slope=0.0)
    lab.differentiate(kind, y, np.full_like(x, 3), dx, slope=0.0, accumulate=False)
    return y, dx


def test_tanh_is_not_the_tangent(lab):
    x = np.linspace(-4, 4, 16, dtype=lab.dtype).reshape(2, 8)
    lab.assert_close(apply(lab, "tanh", x)[0], np.tanh(x.astype(np.float64)))


def test_tanh_s_gradient_follows_the_chain_rule(lab):
    x = np.linspace(-4, 4, 16, dtype=lab.dtype).reshape(2, 8)
    lab.assert_close(apply(lab, "tanh", x)[1], 3 / np.cosh(x.astype(np.float64)) ** 2)


def test_arctanh_is_not_the_arctangent(lab):
    x = np.linspace(-0.9, 0.9, 16, dtype=lab.dtype).reshape(2, 8)
    y, dx = apply(lab, "arctanh", x)
    exact = x.astype(np.float64)
    lab.assert_close(y, np.arctanh(exact))
    lab.assert_close(dx, 3 / (1 - exact**2))


def test_log_sigmoid_s_gradient_follows_the_chain_rule(lab):
    x = np.linspace(-6, 6, 16, dtype=lab.dtype).reshape(2, 8)
    lab.assert_close(apply(lab, "log_sigmoid", x)[1], 3 / (1 + np.exp(x.astype(np.float64))))


def test_binary_cross_entropy_of_known_probabilities(lab):
    """Certainty of 3/4 in the right answer costs log(4/3), of 1/4 log 4."""
    prediction = np.resize(np.array([0.75, 0.25], lab.dtype), (1, 8))
    target = np.ones_like(prediction)
    value = lab.kernels.loss("binary_cross_entropy", prediction, target, None, n=8, scale=1.0)
    assert value == pytest.approx(4 * np.log(4 / 3) + 4 * np.log(4), rel=lab.tolerance)


def test_binary_cross_entropy_counts_wrong_positives(lab):
    prediction, target = np.full((1, 8), 0.75, lab.dtype), np.zeros((1, 8), lab.dtype)
    value = lab.kernels.loss("binary_cross_entropy", prediction, target, None, n=8, scale=1.0)
    assert value == pytest.approx(8 * np.log(4), rel=lab.tolerance)


def test_a_dense_layer_without_bias_is_not_zero(lab):
    x, weight = lab.activation(7, 5), lab.parameter(3, 5)
    y = lab.output(7, 3)
    lab.kernels.dense_forward(x, weight, None, y, relu=False)
    lab.assert_close(y, weight.astype(np.float64) @ x.astype(np.float64))
    assert y.any()


def test_dropout_does_not_share_one_mask_over_the_batch(lab):
    x = np.ones((64, 16), lab.dtype)
    y = np.empty_like(x)
    lab.kernels.dropout(x, y, rate=0.5, key=1, accumulate=False)
    agreement = np.mean(y[:, :1] == y[:, 1:])
    assert 0.4 < agreement < 0.6


@pytest.mark.parametrize("algorithm", ["direct", "gemm"])
def test_a_depthwise_convolution_has_gradients(lab, algorithm):
    """An identity kernel passes values and gradients through unchanged, channel by channel."""
    x, dy = lab.activation(7, 4, 5, 5), lab.gradient(7, 4, 5, 5)
    weight = np.zeros((4, 1, 3, 3), lab.dtype)
    weight[:, :, 1, 1] = 1
    dx, dweight = np.full_like(x, np.nan), np.full_like(weight, np.nan)
    lab.kernels.conv2d_backward_data(dy, weight, dx, **WINDOW, algorithm=algorithm, accumulate=False)
    lab.kernels.conv2d_backward_weight(x, dy, dweight, **WINDOW, algorithm=algorithm)
    lab.assert_close(dx, dy)
    lab.assert_close(dweight[:, 0, 1, 1], np.einsum("chwn,chwn->c", x.astype(np.float64), dy.astype(np.float64)))


def test_batch_normalisation_counts_every_pixel(lab):
    """Each pixel of a sample differs: statistics over the batch alone would leave no variance at all."""
    pixels = np.arange(16, dtype=lab.dtype).reshape(1, 4, 4, 1)
    x = np.repeat(pixels, 8, axis=-1)
    y = np.empty_like(x)
    mean, inv_std, running_mean, running_var = np.zeros((4, 1), lab.dtype)
    one, zero = np.ones(1, lab.dtype), np.zeros(1, lab.dtype)
    lab.kernels.batch_norm_forward_train(
        x, one, zero, y, mean, inv_std, running_mean, running_var, n=8, momentum=0.0, epsilon=0.0, relu=False
    )
    assert mean[0] == pytest.approx(7.5)
    assert inv_std[0] == pytest.approx(1 / np.sqrt(21.25), rel=1e-5)
    assert running_var[0] == pytest.approx(21.25 * 128 / 127, rel=1e-5)


def test_average_pooling_does_not_count_padding(lab):
    x, y = np.ones((1, 3, 3, 8), lab.dtype), np.empty((1, 2, 2, 8), lab.dtype)
    lab.kernels.avg_pool2d_forward(x, y, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    lab.assert_close(y, np.ones_like(y))


def test_weight_gradients_are_sums_over_the_batch_not_means(lab, n):
    """The scale enters once, at the loss: otherwise ranks with fewer samples would weigh too much."""
    x, dy = np.ones((1, 2, 2, 64), lab.dtype), np.zeros((1, 2, 2, 64), lab.dtype)
    dy[..., :n] = 1
    dweight = np.full((1, 1, 1, 1), np.nan, lab.dtype)
    window = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    lab.kernels.conv2d_backward_weight(x, dy, dweight, **window, algorithm="direct")
    assert dweight[0, 0, 0, 0] == 4 * n
