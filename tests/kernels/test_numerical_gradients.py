"""Every backward kernel against central differences of its forward kernel, in float64."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from ringlet.kernels.contract import CONV_ALGORITHMS, Loss
from ringlet.operations.activations import OPERATIONS

ACTIVATIONS = [operation.name for operation in OPERATIONS]

STEP = 1e-5
NUM_DIRECTIONS = 3
N = 5
WINDOWS = {
    "plain": {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1},
    "strided": {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 1), "groups": 1},
    "dilated": {"stride": (1, 1), "padding": (2, 1), "dilation": (2, 1), "groups": 1},
    "grouped": {"stride": (1, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 2},
    "depthwise": {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 4},
}
CONVOLUTIONS = [("plain", algorithm) for algorithm in CONV_ALGORITHMS] + [
    (name, algorithm) for name in WINDOWS if name != "plain" for algorithm in ("direct", "gemm")
]
POOL = {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 1)}

convolutions = pytest.mark.parametrize(("window", "algorithm"), CONVOLUTIONS)


def assert_derivative(lab, function, array, gradient) -> None:
    """``function()`` reads ``array``: its change along random directions must be the gradient's scalar product."""
    for _ in range(NUM_DIRECTIONS):
        direction = lab.rng.uniform(-1, 1, array.shape)
        original = array.copy()
        array[...] = original + STEP * direction
        above = function()
        array[...] = original - STEP * direction
        below = function()
        array[...] = original
        expected = (above - below) / (2 * STEP)
        assert float(np.sum(gradient * direction)) == pytest.approx(expected, rel=1e-6, abs=1e-7)


class Convolution:
    """A small convolution whose scalar result is ``sum(dy * y)``."""

    def __init__(self, lab, window: str, algorithm: str) -> None:
        self.kernels, self.window, self.algorithm = lab.kernels, WINDOWS[window], algorithm
        self.x, self.weight = lab.activation(N, 4, 6, 7), lab.parameter(8, 4 // self.window["groups"], 3, 3)
        size = [
            (extent + 2 * padding - 2 * dilation - 1) // stride + 1
            for extent, padding, dilation, stride in zip(
                (6, 7), self.window["padding"], self.window["dilation"], self.window["stride"], strict=True
            )
        ]
        self.y, self.dy = lab.output(N, 8, *size), lab.gradient(N, 8, *size)

    def __call__(self) -> float:
        self.kernels.conv2d_forward(
            self.x, self.weight, None, self.y, **self.window, relu=False, algorithm=self.algorithm
        )
        return float(np.sum(self.y * self.dy))


@convolutions
def test_convolution_in_its_input(lab64, window, algorithm):
    conv = Convolution(lab64, window, algorithm)
    dx = np.full_like(conv.x, np.nan)
    lab64.kernels.conv2d_backward_data(conv.dy, conv.weight, dx, **conv.window, algorithm=algorithm, accumulate=False)
    assert_derivative(lab64, conv, conv.x, dx)


@convolutions
def test_convolution_in_its_weight(lab64, window, algorithm):
    conv = Convolution(lab64, window, algorithm)
    dweight = np.full_like(conv.weight, np.nan)
    lab64.kernels.conv2d_backward_weight(conv.x, conv.dy, dweight, **conv.window, algorithm=algorithm)
    assert_derivative(lab64, conv, conv.weight, dweight)


def test_transposed_convolution(lab64):
    x, weight, dy = lab64.activation(N, 4, 3, 3), lab64.parameter(4, 3, 2, 2), lab64.gradient(N, 3, 6, 6)
    y, dx, dweight = lab64.output(N, 3, 6, 6), np.empty_like(x), np.empty_like(weight)
    window = {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 1}

    def scalar() -> float:
        lab64.kernels.conv2d_backward_data(x, weight, y, **window, algorithm="gemm", accumulate=False)
        return float(np.sum(y * dy))

    lab64.kernels.conv2d_forward(dy, weight, None, dx, **window, relu=False, algorithm="gemm")
    lab64.kernels.conv2d_backward_weight(dy, x, dweight, **window, algorithm="gemm")
    assert_derivative(lab64, scalar, x, dx)
    assert_derivative(lab64, scalar, weight, dweight)


def test_dense_with_bias(lab64):
    x, weight, bias = lab64.activation(N, 6), lab64.parameter(4, 6), lab64.parameter(4)
    y, dy = lab64.output(N, 4), lab64.gradient(N, 4)

    def scalar() -> float:
        lab64.kernels.dense_forward(x, weight, bias, y, relu=False)
        return float(np.sum(y * dy))

    dx, dweight, dbias = np.empty_like(x), np.empty_like(weight), np.empty_like(bias)
    lab64.kernels.dense_backward_data(dy, weight, dx, accumulate=False)
    lab64.kernels.dense_backward_weight(x, dy, dweight)
    lab64.kernels.bias_backward(dy, dbias)
    for array, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert_derivative(lab64, scalar, array, gradient)


def test_max_pooling(lab64):
    x = lab64.rng.permutation(3 * 6 * 7 * N).reshape(3, 6, 7, N).astype(float)  # no two values closer than one
    y, dy = lab64.output(N, 3, 3, 4), lab64.gradient(N, 3, 3, 4)
    argmax = np.empty(y.shape, np.uint16)

    def scalar() -> float:
        lab64.kernels.max_pool2d_forward(x, y, argmax, **POOL)
        return float(np.sum(y * dy))

    scalar()
    dx = np.empty_like(x)
    lab64.kernels.max_pool2d_backward(dy, argmax, dx, **POOL, accumulate=False)
    assert_derivative(lab64, scalar, x, dx)


def test_average_pooling(lab64):
    x, y, dy = lab64.activation(N, 3, 6, 7), lab64.output(N, 3, 3, 4), lab64.gradient(N, 3, 3, 4)

    def scalar() -> float:
        lab64.kernels.avg_pool2d_forward(x, y, **POOL)
        return float(np.sum(y * dy))

    dx = np.empty_like(x)
    lab64.kernels.avg_pool2d_backward(dy, dx, **POOL, accumulate=False)
    assert_derivative(lab64, scalar, x, dx)


@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
def test_batch_normalisation(lab64, relu):
    x, gamma, beta = lab64.activation(N, 3, 4, 4), lab64.parameter(3, low=0.5, high=2), lab64.parameter(3)
    y, dy = lab64.output(N, 3, 4, 4), lab64.gradient(N, 3, 4, 4)
    mean, inv_std, running_mean, running_var = np.zeros((4, 3))

    def scalar() -> float:
        lab64.kernels.batch_norm_forward_train(
            x, gamma, beta, y, mean, inv_std, running_mean, running_var, n=N, momentum=0.9, epsilon=1e-5, relu=relu
        )
        return float(np.sum(y * dy))

    scalar()
    dx, dgamma, dbeta = np.empty_like(x), np.empty(3), np.empty(3)
    lab64.kernels.batch_norm_backward(
        x, y, gamma, dy, mean, inv_std, dx, dgamma, dbeta, n=N, relu=relu, accumulate=False
    )
    for array, gradient in ((x, dx), (gamma, dgamma), (beta, dbeta)):
        assert_derivative(lab64, scalar, array, gradient)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation(lab64, kind):
    limit = 0.9 if kind == "arctanh" else 7.0
    x, dy = lab64.activation(N, 3, 4, 4, low=-limit, high=limit), lab64.gradient(N, 3, 4, 4)
    y, dx = np.empty_like(x), np.empty_like(x)

    def scalar() -> float:
        lab64.activate(kind, x, y, slope=0.1)
        return float(np.sum(y * dy))

    scalar()
    lab64.differentiate(kind, y, dy, dx, slope=0.1, accumulate=False)
    assert_derivative(lab64, scalar, x, dx)


def test_softmax(lab64):
    x, dy = lab64.activation(N, 5, 3, 3, low=-3, high=3), lab64.gradient(N, 5, 3, 3)
    y, dx = np.empty_like(x), np.empty_like(x)

    def scalar() -> float:
        lab64.kernels.softmax_forward(x, y)
        return float(np.sum(y * dy))

    scalar()
    lab64.kernels.softmax_backward(y, dy, dx, accumulate=False)
    assert_derivative(lab64, scalar, x, dx)


def test_dropout(lab64):
    x, dy = lab64.activation(N, 5, 3, 3), lab64.gradient(N, 5, 3, 3)
    y, dx = np.empty_like(x), np.empty_like(x)

    def scalar() -> float:
        lab64.kernels.dropout(x, y, rate=0.4, key=77, accumulate=False)
        return float(np.sum(y * dy))

    lab64.kernels.dropout(dy, dx, rate=0.4, key=77, accumulate=False)
    assert_derivative(lab64, scalar, x, dx)


@pytest.mark.parametrize("kind", get_args(Loss))
def test_loss(lab64, kind):
    shape = (4, 3, 3)
    prediction = lab64.activation(N, *shape, low=0.1, high=0.9)
    if kind in ("softmax_cross_entropy", "categorical_cross_entropy"):
        target = lab64.rng.integers(0, 4, (3, 3, prediction.shape[-1])).astype(np.int32)
    else:
        target = np.round(lab64.activation(N, *shape, low=0, high=1))

    def scalar() -> float:
        return 0.7 * lab64.kernels.loss(kind, prediction, target, None, n=N, scale=1.0)

    gradient = lab64.output(N, *shape)
    lab64.kernels.loss(kind, prediction, target, gradient, n=N, scale=0.7)
    assert_derivative(lab64, scalar, prediction, gradient)
