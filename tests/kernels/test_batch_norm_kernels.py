"""Batch normalisation against PyTorch, for images and features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

SHAPES = [(17,), (4, 5, 3)]
MOMENTUM = 0.9
EPSILON = 1e-5

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
relus = pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])


class Layer(NamedTuple):
    x: np.ndarray
    gamma: np.ndarray
    beta: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    inv_std: np.ndarray
    running_mean: np.ndarray
    running_var: np.ndarray


def make_layer(lab, n: int, shape: tuple[int, ...], *, offset: float = 0.3) -> Layer:
    channels = shape[0]
    x = lab.activation(n, *shape) + lab.dtype.type(offset)
    return Layer(
        x, lab.parameter(channels, low=0.5, high=2), lab.parameter(channels), lab.output(n, *shape),
        lab.unwritten(channels), lab.unwritten(channels), lab.parameter(channels),
        lab.parameter(channels, low=0.5, high=2),
    )  # fmt: skip


def train(lab, layer: Layer, n: int, *, relu: bool, y=None) -> None:
    lab.kernels.batch_norm_forward_train(
        layer.x, layer.gamma, layer.beta, layer.y if y is None else y, layer.mean, layer.inv_std,
        layer.running_mean, layer.running_var, n=n, momentum=MOMENTUM, epsilon=EPSILON, relu=relu,
    )  # fmt: skip


def torch_train(x, gamma, beta, running_mean, running_var, relu: bool):
    y = F.batch_norm(x, running_mean, running_var, gamma, beta, training=True, momentum=1 - MOMENTUM, eps=EPSILON)
    return y.relu() if relu else y


def skip_single_value(n: int, shape: tuple[int, ...]) -> None:
    if n * int(np.prod(shape[1:])) == 1:
        pytest.skip("PyTorch refuses one value per channel; a test below covers it")


@shapes
@relus
def test_training_forward_equals_torch(lab, n, shape, relu):
    skip_single_value(n, shape)
    layer = make_layer(lab, n, shape)
    running = torch.tensor(layer.running_mean.astype(float)), torch.tensor(layer.running_var.astype(float))
    expected = torch_train(lab.oracle(layer.x, n), lab.oracle(layer.gamma), lab.oracle(layer.beta), *running, relu)
    train(lab, layer, n, relu=relu)
    lab.assert_activation(layer.y, expected, n)
    lab.assert_close(layer.running_mean, running[0])
    lab.assert_close(layer.running_var, running[1])


@shapes
def test_statistics_cover_the_real_samples_and_all_pixels(lab, n, shape):
    layer = make_layer(lab, n, shape)
    train(lab, layer, n, relu=False)
    values = lab.samples(layer.x, n).swapaxes(0, 1).reshape(shape[0], -1)
    lab.assert_close(layer.mean, values.mean(axis=1))
    lab.assert_close(layer.inv_std, 1 / np.sqrt(values.var(axis=1) + EPSILON))


def test_variance_survives_a_large_mean(lab):
    """Two passes: the mean of squares minus the square of the mean would lose everything in float32."""
    layer = make_layer(lab, 64, (2, 8, 8), offset=1000)
    train(lab, layer, 64, relu=False)
    variance = lab.samples(layer.x, 64).swapaxes(0, 1).reshape(2, -1).var(axis=1)
    lab.assert_close(layer.inv_std, 1 / np.sqrt(variance + EPSILON), factor=10)


def test_one_value_per_channel_gives_the_shift(lab):
    layer = make_layer(lab, 1, (3,))
    expected_var = MOMENTUM * layer.running_var
    train(lab, layer, 1, relu=False)
    lab.assert_activation(layer.y, layer.beta[None], 1)
    lab.assert_close(layer.running_var, expected_var)


@relus
def test_a_forward_pass_may_overwrite_its_input(lab, n, relu):
    layer = make_layer(lab, n, (3, 4, 4))
    running = layer.running_mean.copy(), layer.running_var.copy()
    train(lab, layer, n, relu=relu)
    again = layer._replace(x=layer.x.copy(), running_mean=running[0], running_var=running[1])
    train(lab, again, n, relu=relu, y=again.x)
    lab.assert_close(again.x[..., :n], layer.y[..., :n])


@shapes
@relus
@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "apart"])
def test_inference_equals_torch_and_keeps_the_statistics(lab, n, shape, relu, in_place):
    layer = make_layer(lab, n, shape)
    running = layer.running_mean.copy(), layer.running_var.copy()
    expected = F.batch_norm(
        lab.oracle(layer.x, n), lab.oracle(running[0]).detach(), lab.oracle(running[1]).detach(),
        lab.oracle(layer.gamma), lab.oracle(layer.beta), training=False, eps=EPSILON,
    )  # fmt: skip
    y = layer.x if in_place else layer.y
    lab.kernels.batch_norm_forward_infer(
        layer.x, layer.gamma, layer.beta, layer.running_mean, layer.running_var, y, epsilon=EPSILON, relu=relu
    )
    lab.assert_activation(y, expected.relu() if relu else expected, n)
    np.testing.assert_array_equal(layer.running_mean, running[0])
    np.testing.assert_array_equal(layer.running_var, running[1])


@shapes
@relus
@pytest.mark.parametrize("mode", ["overwrite", "add", "in-place"])
def test_gradients_equal_torch(lab, n, shape, relu, mode):
    skip_single_value(n, shape)
    layer, dy = make_layer(lab, n, shape), lab.gradient(n, *shape)
    x, gamma, beta = lab.oracle(layer.x, n), lab.oracle(layer.gamma), lab.oracle(layer.beta)
    torch_train(x, gamma, beta, None, None, relu).backward(lab.constant(dy, n))
    train(lab, layer, n, relu=relu)
    before, gradient = lab.gradient(n, *shape), lab.constant(dy, n)
    dx = {"overwrite": lab.output(n, *shape), "add": before.copy(), "in-place": dy}[mode]
    dgamma, dbeta = lab.unwritten(shape[0]), lab.unwritten(shape[0])
    lab.kernels.batch_norm_backward(
        layer.x, layer.y, layer.gamma, dy, layer.mean, layer.inv_std, dx, dgamma, dbeta, n=n, relu=relu,
        accumulate=mode == "add",
    )  # fmt: skip
    expected = x.grad + lab.constant(before, n) if mode == "add" else x.grad
    # With few values per channel dx is a small difference of terms of size gamma * inv_std * dy: compare on that scale.
    scale = float(np.max(np.abs(layer.gamma * layer.inv_std)) * gradient.abs().max())
    bound = lab.tolerance * 5 * max(scale, 1.0)
    assert not dx[..., n:].any()
    np.testing.assert_allclose(lab.samples(dx, n), expected.numpy(), rtol=0, atol=bound)
    lab.assert_close(dgamma, gamma.grad, factor=10)
    lab.assert_close(dbeta, beta.grad, factor=10)
