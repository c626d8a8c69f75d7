"""Clipping against PyTorch's, and what happens to gradients that are not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ringlet.errors import ConfigError
from ringlet.optim import clip_by_global_norm, clip_by_value, global_norm


def torch_parameter(gradients):
    parameter = torch.nn.Parameter(torch.zeros(len(gradients), dtype=torch.float64))
    parameter.grad = torch.from_numpy(gradients.copy())
    return parameter


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
def test_clipping_by_global_norm_equals_pytorchs(kernels, gradient_at, limit):
    gradients = gradient_at(1, 50)
    parameter = torch_parameter(gradients)
    expected = torch.nn.utils.clip_grad_norm_([parameter], limit)
    assert clip_by_global_norm(gradients, limit, kernels=kernels) == pytest.approx(float(expected))
    np.testing.assert_allclose(gradients, parameter.grad.numpy(), rtol=2e-5)  # PyTorch divides by norm + 1e-6


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
def test_clipping_by_value_equals_pytorchs(gradient_at, limit):
    gradients = gradient_at(2, 50)
    parameter = torch_parameter(gradients)
    torch.nn.utils.clip_grad_value_([parameter], limit)
    clip_by_value(gradients, limit)
    np.testing.assert_array_equal(gradients, parameter.grad.numpy())


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_is_reported_and_nothing_is_clipped(kernels, bad):
    gradients = np.array([3.0, bad, 4.0])
    norm = clip_by_global_norm(gradients, 1.0, kernels=kernels)
    assert not math.isfinite(norm)
    np.testing.assert_array_equal(gradients, [3.0, bad, 4.0])


def test_a_slice_is_clipped_by_the_norm_of_the_whole(kernels):
    part = np.array([3.0])
    assert clip_by_global_norm(part, 1.0, norm=5.0, kernels=kernels) == 5.0
    np.testing.assert_allclose(part, [0.6])


def test_a_norm_is_added_up_in_float64(kernels):
    gradients = np.full(4, 1e30, np.float32)  # squares overflow float32
    assert global_norm(gradients, kernels=kernels) == pytest.approx(2e30, rel=1e-6)


def test_gradients_below_the_limit_keep_their_bits(kernels):
    gradients = np.array([0.1, 0.2, 0.3], np.float32)
    before = gradients.tobytes()
    clip_by_global_norm(gradients, 10.0, kernels=kernels)
    assert gradients.tobytes() == before


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("clip", [clip_by_value, clip_by_global_norm])
def test_a_limit_that_makes_no_sense_is_refused(clip, limit):
    with pytest.raises(ConfigError, match=r"limit=.*expected a finite number > 0"):
        clip(np.ones(2), limit)
