"""How much accuracy Winograd's convolutions may cost: float32 against a direct convolution in float64.

Errors are relative to the largest magnitude of the result. F(4x4, 3x3) has transforms with larger constants and is
allowed ten times the error of F(2x2, 3x3), F(4, 3) along rows twice its error; all stay far below the noise of a
stochastic gradient.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

LIMITS = {"direct": 5e-6, "gemm": 5e-6, "winograd_rows": 1e-5, "winograd2": 5e-6, "winograd4": 5e-5}
SIZES = [(16, 16, 14), (64, 64, 9), (128, 128, 8)]
WINDOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
N = 8

sizes = pytest.mark.parametrize(("channels", "filters", "size"), SIZES)
algorithms = pytest.mark.parametrize("algorithm", LIMITS)


@pytest.fixture(scope="module")
def problem():
    """Activations after a ReLU, weights as He initialises them, gradients of either sign; results are computed once."""
    cache = {}

    def make(channels: int, filters: int, size: int):
        key = (channels, filters, size)
        if key not in cache:
            rng = np.random.default_rng(0)
            x = np.maximum(rng.normal(size=(channels, size, size, N)), 0).astype(np.float32)
            weight = rng.normal(0, (2 / (9 * channels)) ** 0.5, (filters, channels, 3, 3)).astype(np.float32)
            dy = rng.normal(size=(filters, size, size, N)).astype(np.float32)
            cache[key] = x, weight, dy, exact(x, weight, dy)
        return cache[key]

    return make


def exact(x, weight, dy):
    x64, dy64 = (torch.tensor(np.moveaxis(array, -1, 0).astype(np.float64)) for array in (x, dy))
    weight64 = torch.tensor(weight.astype(np.float64))
    x64.requires_grad_()
    weight64.requires_grad_()
    y = F.conv2d(x64, weight64, padding=1)
    y.backward(dy64)
    lanes_last = [np.moveaxis(tensor.detach().numpy(), 0, -1) for tensor in (y, x64.grad)]
    return *lanes_last, weight64.grad.numpy()


def relative_error(actual, expected) -> float:
    return float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))


@sizes
@algorithms
def test_forward_error_is_bounded(kernels, problem, channels, filters, size, algorithm):
    x, weight, dy, (expected, _, _) = problem(channels, filters, size)
    y = np.empty_like(dy)
    kernels.conv2d_forward(x, weight, None, y, **WINDOW, relu=False, algorithm=algorithm)
    assert relative_error(y, expected) < LIMITS[algorithm]


@sizes
@algorithms
def test_data_gradient_error_is_bounded(kernels, problem, channels, filters, size, algorithm):
    x, weight, dy, (_, expected, _) = problem(channels, filters, size)
    dx = np.empty_like(x)
    kernels.conv2d_backward_data(dy, weight, dx, **WINDOW, algorithm=algorithm, accumulate=False)
    assert relative_error(dx, expected) < LIMITS[algorithm]


@sizes
@algorithms
def test_weight_gradient_error_is_bounded(kernels, problem, channels, filters, size, algorithm):
    x, weight, dy, (_, _, expected) = problem(channels, filters, size)
    dweight = np.empty_like(weight)
    kernels.conv2d_backward_weight(x, dy, dweight, **WINDOW, algorithm=algorithm)
    assert relative_error(dweight, expected) < LIMITS[algorithm]
