"""Activations and softmax against PyTorch, also where exponentials would overflow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from ringlet.kernels.contract import Elementwise
from ringlet.operations.activations import OPERATIONS

SLOPE = 0.01
KINDS = [operation.name for operation in OPERATIONS]
ORACLES = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, SLOPE),
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "arctanh": torch.atanh,
    "log_sigmoid": F.logsigmoid,
}
EXTREMES = [-1e4, -100.0, -20.0, -6.0, -1.0, -1e-6, -1e-30, 0.0, 1e-30, 1e-6, 1.0, 3.0, 5.999, 6.0, 20.0, 100.0, 1e4]

kinds = pytest.mark.parametrize("kind", KINDS)
SHAPE = (3, 4, 2)


def inputs(lab, kind: str, n: int):
    limit = 0.95 if kind == "arctanh" else 8.0
    return lab.activation(n, *SHAPE, low=-limit, high=limit)


@kinds
@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "apart"])
def test_forward_equals_torch(lab, n, kind, in_place):
    x = inputs(lab, kind, n)
    expected = ORACLES[kind](lab.oracle(x, n))
    y = x if in_place else lab.output(n, *SHAPE)
    lab.activate(kind, x, y, slope=SLOPE)
    lab.assert_activation(y, expected, n)


@kinds
@pytest.mark.parametrize("mode", ["overwrite", "add", "in-place"])
def test_backward_equals_torch(lab, n, kind, mode):
    x, dy, before = inputs(lab, kind, n), lab.gradient(n, *SHAPE), lab.gradient(n, *SHAPE)
    x_torch = lab.oracle(x, n)
    ORACLES[kind](x_torch).backward(lab.constant(dy, n))
    y = np.empty_like(x)
    lab.activate(kind, x, y, slope=SLOPE)
    dx = {"overwrite": lab.output(n, *SHAPE), "add": before.copy(), "in-place": dy}[mode]
    lab.differentiate(kind, y, dy, dx, slope=SLOPE, accumulate=mode == "add")
    lab.assert_gradient(dx, x_torch.grad + lab.constant(before, n) if mode == "add" else x_torch.grad, n, factor=2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "arctanh"])
def test_extreme_values_give_the_exact_limits_without_warnings(lab, kind):
    x = np.resize(np.array(EXTREMES, lab.dtype), (3, 8))
    x_torch = lab.oracle(x)
    y_torch = ORACLES[kind](x_torch)
    y_torch.sum().backward()
    y, dx = np.empty_like(x), np.empty_like(x)
    lab.activate(kind, x, y, slope=SLOPE)
    lab.differentiate(kind, y, np.ones_like(x), dx, slope=SLOPE, accumulate=False)
    tolerance = 1e-6 if lab.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(y, y_torch.detach().numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(dx, x_torch.grad.numpy(), rtol=tolerance, atol=tolerance)


def test_arctanh_saturates_outside_its_domain(lab):
    """Padding lanes hold anything, so no input may give an infinity; where it saturates nothing flows back."""
    x = np.array([[-1e4, -1.0, -0.9999999, -0.5, 0.5, 0.9999999, 1.0, 1e4]], lab.dtype)
    y, dx = np.empty_like(x), np.empty_like(x)
    lab.activate("arctanh", x, y, slope=0.0)
    lab.differentiate("arctanh", y, np.ones_like(x), dx, slope=0.0, accumulate=False)
    np.testing.assert_allclose(y[0], [-7.25, -7.25, -7.25, np.arctanh(-0.5), np.arctanh(0.5), 7.25, 7.25, 7.25], 1e-6)
    np.testing.assert_allclose(dx[0], [0, 0, 0, 4 / 3, 4 / 3, 0, 0, 0], rtol=1e-6)


def test_every_activation_has_a_compiled_kernel():
    native = pytest.importorskip("ringlet.kernels._native", reason="the compiled kernels were not built")
    assert sorted(native.activations) == sorted(KINDS)


@pytest.mark.parametrize("reads_input", [False, True], ids=["of the output", "of the input"])
def test_an_activation_without_a_compiled_kernel_is_computed_by_its_functions(lab, n, reads_input):
    """Softplus, whose derivative is ``1 - exp(-y)`` or ``(1 + tanh(x / 2)) / 2``, between compiled calls."""
    derivative = (lambda x: (1 + np.tanh(x / 2)) / 2) if reads_input else (lambda y: -np.expm1(-y))
    softplus = Elementwise("softplus", lambda x: np.logaddexp(x, 0), derivative, reads_input=reads_input)
    x, dy = lab.activation(n, *SHAPE, low=-4, high=4), lab.gradient(n, *SHAPE)
    x_torch = lab.oracle(x, n)
    y_torch = F.softplus(2 * x_torch)
    y_torch.backward(lab.constant(dy, n))
    y, double, dx = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    calls = [
        lab.kernels.prepare("add", (x, x, double), {}),
        lab.kernels.prepare("activation_forward", (softplus, double, y), {}),
        lab.kernels.prepare("activation_backward", (softplus, double if reads_input else y, dy, dx), {"accumulate": 0}),
        lab.kernels.prepare("add", (dx, dx, dx), {}),
    ]
    lab.kernels.in_turn(calls)()
    lab.assert_activation(y, y_torch, n)
    lab.assert_gradient(dx, x_torch.grad, n)


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "apart"])
def test_softmax_equals_torch(lab, n, in_place):
    x = lab.activation(n, *SHAPE, low=-5, high=5)
    expected = torch.softmax(lab.oracle(x, n), dim=1)
    y = x if in_place else lab.output(n, *SHAPE)
    lab.kernels.softmax_forward(x, y)
    lab.assert_activation(y, expected, n)


@pytest.mark.parametrize("accumulate", [True, False], ids=["add", "overwrite"])
def test_softmax_gradient_equals_torch(lab, n, accumulate):
    x, dy, before = lab.activation(n, *SHAPE, low=-5, high=5), lab.gradient(n, *SHAPE), lab.gradient(n, *SHAPE)
    x_torch = lab.oracle(x, n)
    torch.softmax(x_torch, dim=1).backward(lab.constant(dy, n))
    y, dx = np.empty_like(x), before.copy() if accumulate else lab.output(n, *SHAPE)
    lab.kernels.softmax_forward(x, y)
    lab.kernels.softmax_backward(y, dy, dx, accumulate=accumulate)
    lab.assert_gradient(dx, x_torch.grad + lab.constant(before, n) if accumulate else x_torch.grad, n)


def test_softmax_of_extreme_logits_is_one_hot(lab):
    x = np.full((4, 8), -1e4, lab.dtype)
    x[2] = 1e4
    y = np.empty_like(x)
    lab.kernels.softmax_forward(x, y)
    np.testing.assert_array_equal(y, np.eye(4, dtype=lab.dtype)[2][:, None].repeat(8, axis=1))


def test_softmax_of_equal_logits_is_uniform(lab):
    x = np.full((5, 2, 2, 8), 1e4, lab.dtype)
    lab.kernels.softmax_forward(x, x)
    lab.assert_close(x, np.full(x.shape, 0.2))
