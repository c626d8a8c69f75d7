"""Losses and their gradients against PyTorch, also for logits and probabilities at their extremes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from ringlet.errors import UnknownNameError
from ringlet.kernels import load
from ringlet.kernels.contract import DICE_SMOOTH, Loss

KINDS = get_args(Loss)
CATEGORICAL = ("softmax_cross_entropy", "categorical_cross_entropy")
LOGITS = ("softmax_cross_entropy", "softmax_soft_cross_entropy", "sigmoid_binary_cross_entropy", "sigmoid_bce_dice")
MARGIN = 1e-7

kinds = pytest.mark.parametrize("kind", KINDS)
shapes = pytest.mark.parametrize("shape", [(10,), (3, 4, 5)], ids=str)


def dice(p, t):
    p, t = p.flatten(1), t.flatten(1)
    return 1 - (2 * (p * t).sum(1) + DICE_SMOOTH) / (p.sum(1) + t.sum(1) + DICE_SMOOTH)


def per_sample(kind: str, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """PyTorch's loss of every sample."""
    if kind in ("softmax_cross_entropy", "softmax_soft_cross_entropy"):
        values = F.cross_entropy(prediction, target, reduction="none")
    elif kind == "soft_cross_entropy":
        values = -(target * prediction.clamp(MARGIN, 1 - MARGIN).log()).sum(dim=1)
    elif kind == "categorical_cross_entropy":
        values = F.nll_loss(prediction.clamp(MARGIN, 1 - MARGIN).log(), target, reduction="none")
    elif kind == "dice":
        return dice(prediction, target)
    elif kind == "bce_dice":
        return per_sample("binary_cross_entropy", prediction, target) + dice(prediction, target)
    elif kind == "sigmoid_bce_dice":
        return per_sample("sigmoid_binary_cross_entropy", prediction, target) + dice(prediction.sigmoid(), target)
    else:
        function = {
            "sigmoid_binary_cross_entropy": F.binary_cross_entropy_with_logits,
            "binary_cross_entropy": lambda p, t, reduction: F.binary_cross_entropy(
                p.clamp(MARGIN, 1 - MARGIN), t, reduction=reduction
            ),
            "mse": F.mse_loss,
            "mae": F.l1_loss,
        }[kind]
        values = function(prediction, target, reduction="none")
    return values.reshape(len(prediction), -1).mean(dim=1)


def make_case(lab, kind: str, n: int, shape: tuple[int, ...]):
    low, high = (-4.0, 4.0) if kind in LOGITS else (0.01, 0.99)
    prediction = lab.activation(n, *shape, low=low, high=high)
    if kind in CATEGORICAL:
        target = lab.rng.integers(0, shape[0], (*shape[1:], prediction.shape[-1])).astype(np.int32)
        oracle_target = torch.tensor(np.moveaxis(target[..., :n], -1, 0).astype(np.int64))
    else:
        target = lab.activation(n, *shape, low=0, high=1)
        target[..., :n] = np.round(target[..., :n]) if kind != "mse" and "soft_" not in kind else target[..., :n]
        oracle_target = lab.constant(target, n)
    return prediction, target, oracle_target


@kinds
@shapes
def test_value_and_gradient_equal_torch(lab, n, kind, shape):
    prediction, target, oracle_target = make_case(lab, kind, n, shape)
    oracle, scale = lab.oracle(prediction, n), 0.37
    expected = per_sample(kind, oracle, oracle_target).sum()
    (expected * scale).backward()
    dprediction = lab.output(n, *shape)
    value = lab.kernels.loss(kind, prediction, target, dprediction, n=n, scale=scale)
    assert value == pytest.approx(expected.item(), rel=lab.tolerance)
    lab.assert_gradient(dprediction, oracle.grad, n)


@kinds
def test_the_value_alone_is_the_same(lab, n, kind):
    prediction, target, _ = make_case(lab, kind, n, (3, 4, 5))
    dprediction = lab.output(n, 3, 4, 5)
    with_gradient = lab.kernels.loss(kind, prediction, target, dprediction, n=n, scale=1.0)
    assert lab.kernels.loss(kind, prediction, target, None, n=n, scale=1.0) == pytest.approx(with_gradient, rel=1e-6)


@kinds
def test_the_prediction_and_the_target_are_left_alone(lab, kind):
    prediction, target, _ = make_case(lab, kind, 7, (3, 4, 5))
    before = prediction.copy(), target.copy()
    lab.kernels.loss(kind, prediction, target, lab.output(7, 3, 4, 5), n=7, scale=1.0)
    np.testing.assert_array_equal(prediction, before[0])
    np.testing.assert_array_equal(target, before[1])


@pytest.mark.parametrize("kind", CATEGORICAL)
@pytest.mark.parametrize("garbage", [-1, 2**30], ids=["negative", "huge"])
def test_classes_in_padding_lanes_are_never_looked_up(lab, kind, garbage):
    prediction, target, _ = make_case(lab, kind, 7, (10,))
    value = lab.kernels.loss(kind, prediction, target, None, n=7, scale=1.0)
    target[7:] = garbage
    assert lab.kernels.loss(kind, prediction, target, None, n=7, scale=1.0) == value


def test_softmax_cross_entropy_of_extreme_logits_is_exact(lab):
    logits = np.full((4, 8), -1e4, lab.dtype)
    logits[1] = 1e4
    target = np.zeros(8, np.int32)
    target[:4] = 1  # half the samples are right, half are off by 2e4
    gradient = np.empty_like(logits)
    assert lab.kernels.loss("softmax_cross_entropy", logits, target, gradient, n=8, scale=1.0) == pytest.approx(8e4)
    np.testing.assert_array_equal(gradient[:, 0], [0, 0, 0, 0])
    np.testing.assert_array_equal(gradient[:, 4], [-1, 1, 0, 0])


def test_sigmoid_binary_cross_entropy_of_extreme_logits_is_exact(lab):
    logits = np.resize(np.array([1e4, -1e4], lab.dtype), (1, 8))
    gradient = np.empty_like(logits)
    value = lab.kernels.loss("sigmoid_binary_cross_entropy", logits, np.ones_like(logits), gradient, n=8, scale=1.0)
    assert value == pytest.approx(4e4)
    np.testing.assert_array_equal(gradient[0], np.resize([0, -1], 8))


def test_sigmoid_bce_dice_of_extreme_logits_is_finite_and_exact(lab):
    logits = np.resize(np.array([1e4, -1e4], lab.dtype), (1, 8))
    gradient = np.empty_like(logits)
    value = lab.kernels.loss("sigmoid_bce_dice", logits, np.ones_like(logits), gradient, n=8, scale=1.0)
    assert value == pytest.approx(4e4 + 4 * 0.5)  # a sample of one pixel that is missed has a dice of 1 / 2
    np.testing.assert_array_equal(gradient[0], np.resize([0, -1], 8))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_impossible_probabilities_stay_finite_and_give_no_gradient(lab, probability):
    prediction = np.full((1, 8), probability, lab.dtype)
    gradient = np.full_like(prediction, np.nan)
    target = np.full_like(prediction, 1 - probability)
    value = lab.kernels.loss("binary_cross_entropy", prediction, target, gradient, n=8, scale=1.0)
    assert value == pytest.approx(8 * -np.log(MARGIN), rel=0.02)
    assert not gradient.any()


def test_a_class_of_probability_zero_stays_finite_and_gives_no_gradient(lab):
    prediction = np.zeros((3, 8), lab.dtype)
    gradient = np.full_like(prediction, np.nan)
    value = lab.kernels.loss("categorical_cross_entropy", prediction, np.ones(8, np.int32), gradient, n=8, scale=1.0)
    assert value == pytest.approx(8 * -np.log(MARGIN), rel=1e-5)
    assert not gradient.any()


def test_two_empty_masks_agree(lab):
    empty = np.zeros((1, 4, 4, 8), lab.dtype)
    assert lab.kernels.loss("dice", empty, empty.copy(), None, n=8, scale=1.0) == 0


def test_absolute_error_has_no_gradient_at_zero(lab):
    values, gradient = lab.parameter(5, 8), lab.unwritten(5, 8)
    assert lab.kernels.loss("mae", values, values.copy(), gradient, n=8, scale=1.0) == 0
    assert not gradient.any()


def test_losses_of_perfect_predictions_are_zero(lab):
    target = np.round(lab.rng.uniform(0, 1, (3, 4, 4, 8))).astype(lab.dtype)
    for kind in ("dice", "mse", "mae"):
        assert lab.kernels.loss(kind, target.copy(), target, None, n=8, scale=1.0) == pytest.approx(0, abs=1e-6)


def test_an_unknown_loss_is_an_error():
    values = np.zeros((1, 8))
    with pytest.raises(UnknownNameError, match="Did you mean 'mse'"):
        load("reference").loss("msee", values, values, None, n=8, scale=1.0)
