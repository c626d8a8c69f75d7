"""The cross-entropy of mixed samples is the same mixture of the losses of whole classes, on every path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from ringlet.engines.torch.ops import TorchOps
from ringlet.errors import ConfigError
from ringlet.losses import LOSSES

RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.normal(size=(6, 4))
FIRST, SECOND = RANDOM.integers(0, 4, (2, 6))
SHARE = RANDOM.random(6)
SHARES = SHARE[:, None] * np.eye(4)[FIRST] + (1 - SHARE)[:, None] * np.eye(4)[SECOND]
TABLE = np.array([0.5, 2.0, 1.0, 3.0])
WEIGHTED = pytest.mark.parametrize("table", [None, TABLE], ids=["plain", "weighted"])
SMOOTHED = pytest.mark.parametrize("smoothing", [0.0, 0.1])


def hard(smoothing):
    return LOSSES.made(f"categorical_cross_entropy,label_smoothing={smoothing}")


def values_of(loss, predictions, targets, weights, *, logits):
    moved = [None if array is None else np.moveaxis(array, 0, -1) for array in (predictions, targets, weights)]
    values, gradient = loss.gradient(*moved, logits=logits)
    return values, np.moveaxis(gradient, -1, 0)


@pytest.mark.parametrize("logits", [True, False], ids=["logits", "probabilities"])
@WEIGHTED
@SMOOTHED
def test_shares_mix_the_losses_of_their_classes_and_their_gradients(logits, table, smoothing):
    predictions = LOGITS if logits else np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    expected, expected_gradient = np.zeros(6), np.zeros((6, 4))
    for classes, share in ((FIRST, SHARE), (SECOND, 1 - SHARE)):
        own = None if table is None else table[classes]
        values, gradient = values_of(hard(smoothing), predictions, classes, own, logits=logits)
        expected, expected_gradient = expected + share * values, expected_gradient + share[:, None] * gradient
    weights = None if table is None else np.broadcast_to(table, SHARES.shape)
    values, gradient = values_of(hard(smoothing).soft_form(), predictions, SHARES, weights, logits=logits)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-10, atol=1e-13)


@WEIGHTED
@SMOOTHED
def test_tensors_of_a_framework_give_the_same(table, smoothing):
    loss, weights = hard(smoothing).soft_form(), None if table is None else np.broadcast_to(table, SHARES.shape)
    tensors = [None if array is None else torch.tensor(array) for array in (LOGITS, SHARES, weights)]
    found = loss.tensors(TorchOps, tensors[0].requires_grad_(), *tensors[1:], logits=True)
    found.sum().backward()
    values, gradient = values_of(loss, LOGITS, SHARES, weights, logits=True)
    np.testing.assert_allclose(found.detach(), values, rtol=1e-12)
    np.testing.assert_allclose(tensors[0].grad, gradient, rtol=1e-10, atol=1e-13)


def test_weights_of_classes_are_pytorchs_of_shares():
    expected = functional.cross_entropy(
        torch.from_numpy(LOGITS), torch.from_numpy(SHARES), weight=torch.from_numpy(TABLE), reduction="none"
    )
    weights = np.broadcast_to(TABLE, SHARES.shape)
    values, _ = values_of(hard(0).soft_form(), LOGITS, SHARES, weights, logits=True)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_a_loss_of_values_takes_shares_as_it_is():
    assert LOSSES.made("mse").soft_form() == LOSSES.made("mse")


def test_a_loss_of_whole_classes_refuses_shares():
    with pytest.raises(ConfigError, match="loss 'focal' compares whole classes"):
        LOSSES.made("focal").soft_form()
