"""The number of threads must not change a single bit, for kernels that have threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ringlet.kernels.contract import CONV_ALGORITHMS, Kernels

WINDOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
POOL = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}
N = 61


@pytest.fixture
def with_threads(kernels: Kernels) -> Iterator[Callable[[int], None]]:
    set_num_threads = getattr(kernels, "set_num_threads", None)
    if set_num_threads is None:
        pytest.skip(f"the {kernels.name} kernels have no threads of their own")
    before = kernels.num_threads()

    def use(num_threads: int) -> None:
        set_num_threads(num_threads)
        assert kernels.num_threads() == num_threads

    yield use
    set_num_threads(before)


def assert_same_bits(with_threads, compute) -> None:
    """``compute()`` returns all arrays that it wrote."""
    results = []
    for num_threads in (1, 2, 3):
        with_threads(num_threads)  # fails itself if the number was not taken
        results.append(b"".join(np.asarray(array).tobytes() for array in compute()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("num_samples", [N, 16, 3, 1])
@pytest.mark.parametrize("algorithm", CONV_ALGORITHMS)
def test_convolution(lab, with_threads, algorithm, num_samples):
    x, weight = lab.activation(num_samples, 9, 11, 10), lab.parameter(17, 9, 3, 3)
    dy = lab.gradient(num_samples, 17, 11, 10)

    def compute():
        y, dx, dweight = np.empty_like(dy), np.empty_like(x), np.empty_like(weight)
        lab.kernels.conv2d_forward(x, weight, None, y, **WINDOW, relu=True, algorithm=algorithm)
        lab.kernels.conv2d_backward_data(dy, weight, dx, **WINDOW, algorithm=algorithm, accumulate=False)
        lab.kernels.conv2d_backward_weight(x, dy, dweight, **WINDOW, algorithm=algorithm)
        return y, dx, dweight

    assert_same_bits(with_threads, compute)


@pytest.mark.parametrize(("groups", "stride"), [(9, 2), (9, 1), (1, 2)])
@pytest.mark.parametrize("num_samples", [N, 3])
def test_depthwise_and_strided_convolution(lab, with_threads, groups, stride, num_samples):
    x, weight = lab.activation(num_samples, 9, 11, 9), lab.parameter(9, 9 // groups, 3, 3)
    dy = lab.gradient(num_samples, 9, -(-11 // stride), -(-9 // stride))
    window = {"stride": (stride, stride), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    algorithm = "direct"

    def compute():
        y, dx, dweight = np.empty_like(dy), np.empty_like(x), np.empty_like(weight)
        lab.kernels.conv2d_forward(x, weight, None, y, **window, relu=True, algorithm=algorithm)
        lab.kernels.conv2d_backward_data(dy, weight, dx, **window, algorithm=algorithm, accumulate=False)
        lab.kernels.conv2d_backward_weight(x, dy, dweight, **window, algorithm=algorithm)
        return y, dx, dweight

    assert_same_bits(with_threads, compute)


def test_dense_and_bias(lab, with_threads):
    x, weight, bias, dy = lab.activation(N, 301), lab.parameter(67, 301), lab.parameter(67), lab.gradient(N, 67)

    def compute():
        y, dx, dweight, dbias = np.empty_like(dy), np.empty_like(x), np.empty_like(weight), np.empty_like(bias)
        lab.kernels.dense_forward(x, weight, bias, y, relu=True)
        lab.kernels.dense_backward_data(dy, weight, dx, accumulate=False)
        lab.kernels.dense_backward_weight(x, dy, dweight)
        lab.kernels.bias_backward(dy, dbias)
        return y, dx, dweight, dbias

    assert_same_bits(with_threads, compute)


def test_pooling(lab, with_threads):
    x, dy = lab.activation(N, 7, 12, 12), lab.gradient(N, 7, 6, 6)

    def compute():
        largest, mean, argmax = np.empty_like(dy), np.empty_like(dy), np.empty(dy.shape, np.uint16)
        d_largest, d_mean, sums = np.empty_like(x), np.empty_like(x), np.empty(7, lab.dtype)
        lab.kernels.max_pool2d_forward(x, largest, argmax, **POOL)
        lab.kernels.max_pool2d_backward(dy, argmax, d_largest, sums, **POOL, accumulate=False)
        lab.kernels.avg_pool2d_forward(x, mean, **POOL)
        lab.kernels.avg_pool2d_backward(dy, d_mean, **POOL, accumulate=False)
        return largest, argmax, d_largest, sums, mean, d_mean

    assert_same_bits(with_threads, compute)


def test_batch_normalisation(lab, with_threads):
    x, dy, gamma, beta = lab.activation(N, 5, 9, 9), lab.gradient(N, 5, 9, 9), lab.parameter(5), lab.parameter(5)

    def compute():
        y, dx, dgamma, dbeta = np.empty_like(x), np.empty_like(x), np.empty_like(gamma), np.empty_like(beta)
        mean, inv_std, running_mean, running_var = np.zeros((4, 5), lab.dtype)
        lab.kernels.batch_norm_forward_train(
            x, gamma, beta, y, mean, inv_std, running_mean, running_var, n=N, momentum=0.9, epsilon=1e-5, relu=True
        )
        lab.kernels.batch_norm_backward(
            x, y, gamma, dy, mean, inv_std, dx, dgamma, dbeta, n=N, relu=True, accumulate=False
        )
        return y, mean, inv_std, running_mean, running_var, dx, dgamma, dbeta

    assert_same_bits(with_threads, compute)


def test_elementwise_and_loss(lab, with_threads):
    x, target = lab.activation(N, 10, 13, 13), lab.rng.integers(0, 10, (13, 13, N)).astype(np.int32)

    def compute():
        soft, dropped, squashed, gradient = (np.empty_like(x) for _ in range(4))
        lab.kernels.softmax_forward(x, soft)
        lab.kernels.dropout(x, dropped, rate=0.5, key=9, accumulate=False)
        lab.activate("sigmoid", x, squashed, slope=0.0)
        value = lab.kernels.loss("softmax_cross_entropy", x, target, gradient, n=N, scale=0.1)
        return soft, dropped, squashed, gradient, np.float64(value)

    assert_same_bits(with_threads, compute)


@pytest.mark.parametrize("kind", ["dice", "bce_dice", "sigmoid_bce_dice"])
def test_losses_of_masks(lab, with_threads, kind):
    x, target = lab.activation(N, 3, 37, 41, low=0.1, high=0.9), np.round(lab.activation(N, 3, 37, 41, low=0, high=1))

    def compute():
        gradient = np.empty_like(x)
        return gradient, np.float64(lab.kernels.loss(kind, x, target, gradient, n=N, scale=0.1))

    assert_same_bits(with_threads, compute)


def test_updates_and_sums(lab, with_threads):
    size = 300_007
    start, gradients = lab.parameter(size), lab.parameter(size)

    def compute():
        parameters, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
        lab.kernels.adam_update(
            parameters, gradients, first, second, learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8, step=1,
            weight_decay=0.01, decoupled=True, nesterov=False,
        )  # fmt: skip
        return parameters, first, second, np.float64(lab.kernels.sum_squares(gradients))

    assert_same_bits(with_threads, compute)
