"""Losses in NumPy have PyTorch's values, and gradients that central differences confirm in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from ringlet.losses import LOSSES
from ringlet.losses.functions import loss_of

SAMPLES, CHANNELS = 5, 4
RANDOM = np.random.default_rng(11)
LOGITS = RANDOM.normal(size=(SAMPLES, CHANNELS)) * 2
CLASSES = RANDOM.integers(0, CHANNELS, SAMPLES)
ONES = RANDOM.integers(0, 2, (SAMPLES, CHANNELS)).astype(float)
VALUES = RANDOM.normal(size=(SAMPLES, CHANNELS))
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 3.0])


def gradient(loss, prediction, target, weight=None, *, logits):
    """Samples outermost, as PyTorch has them."""
    found = LOSSES.made(loss).gradient(
        np.moveaxis(prediction, 0, -1),
        np.moveaxis(target, 0, -1),
        None if weight is None else np.moveaxis(weight, 0, -1),
        logits=logits,
    )
    return found[0], np.moveaxis(found[1], -1, 0)


def torch_focal(logits, targets):
    """The definition: gamma 2, alpha 0.25."""
    entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    right = torch.exp(-entropy)
    return (0.25 * targets + 0.75 * (1 - targets)) * (1 - right) ** 2 * entropy


PYTORCH = [
    (
        "categorical_cross_entropy,label_smoothing=0.1",
        CLASSES,
        lambda x, t: functional.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
    ),
    ("focal,gamma=0", CLASSES, lambda x, t: functional.cross_entropy(x, t, reduction="none")),
    (
        "focal,gamma=2",
        CLASSES,
        lambda x, t: (
            (1 - torch.exp(-functional.cross_entropy(x, t, reduction="none"))) ** 2
            * functional.cross_entropy(x, t, reduction="none")
        ),
    ),
    (
        "binary_cross_entropy",
        ONES,
        lambda x, t: functional.binary_cross_entropy_with_logits(x, t, reduction="none").mean(1),
    ),
    ("binary_focal,alpha=0.25", ONES, lambda x, t: torch_focal(x, t).mean(1)),
]


@pytest.mark.parametrize(("loss", "targets", "theirs"), PYTORCH, ids=[entry[0] for entry in PYTORCH])
def test_losses_of_logits_and_their_gradients_are_pytorchs(loss, targets, theirs):
    logits = torch.from_numpy(LOGITS).requires_grad_()
    expected = theirs(logits, torch.from_numpy(targets))
    expected.sum().backward()
    values, found = gradient(loss, LOGITS, targets, logits=True)
    np.testing.assert_allclose(values, expected.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(found, logits.grad.numpy(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("delta", [0.3, 1.0])
def test_huber_is_pytorchs(delta):
    prediction = torch.from_numpy(LOGITS).requires_grad_()
    expected = functional.huber_loss(prediction, torch.from_numpy(VALUES), delta=delta, reduction="none").mean(1)
    expected.sum().backward()
    values, found = gradient(f"huber,delta={delta}", LOGITS, VALUES, logits=False)
    np.testing.assert_allclose(values, expected.detach().numpy())
    np.testing.assert_allclose(found, prediction.grad.numpy())


def test_weights_of_classes_are_those_of_pytorchs_cross_entropy_before_its_division():
    table = np.array([0.5, 2.0, 1.0, 3.0])
    expected = functional.cross_entropy(
        torch.from_numpy(LOGITS), torch.from_numpy(CLASSES), weight=torch.from_numpy(table), reduction="sum"
    )
    values, _ = gradient("cross_entropy", LOGITS, CLASSES, table[CLASSES], logits=True)
    assert values.sum() == pytest.approx(float(expected))


NUMERICAL = [
    "categorical_cross_entropy", "categorical_cross_entropy,label_smoothing=0.2", "focal,gamma=1.5", "focal,gamma=0.5",
    "binary_cross_entropy", "binary_cross_entropy,label_smoothing=0.2", "binary_focal,gamma=2.5,alpha=0.7",
    "dice,smooth=0.5", "tversky", "bce_dice,smooth=2", "mse", "mae", "huber,delta=0.4",
]  # fmt: skip


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("text", NUMERICAL)
@pytest.mark.parametrize("logits", [False, True])
def test_gradients_are_those_of_central_differences(text, logits, weighted, pixels):
    loss = LOSSES.parse(text)
    if logits and not loss.joins:
        logits = False
    random = np.random.default_rng(3)
    shape = (3, 2, 2, 4) if pixels else (3, 4)
    prediction = random.normal(size=shape) if logits else random.uniform(0.05, 0.95, shape)
    one_per_pixel = loss.targets == "classes"
    target = random.integers(0, 3, shape[1:]) if one_per_pixel else random.integers(0, 2, shape).astype(float)
    weight = random.uniform(0, 2, target.shape) if weighted else None
    values, found = loss.gradient(prediction, target, weight, logits=logits)
    assert values.shape == shape[-1:]
    step, numeric = 1e-6, np.empty(shape)
    for place in np.ndindex(shape):
        moved = prediction.copy()
        moved[place] += step
        above = loss.gradient(moved, target, weight, logits=logits)[0].sum()
        moved[place] -= 2 * step
        numeric[place] = (above - loss.gradient(moved, target, weight, logits=logits)[0].sum()) / (2 * step)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("text", ["focal,gamma=0.5", "focal", "binary_focal", "binary_focal,gamma=0.5"])
def test_focal_losses_of_huge_logits_stay_finite(text):
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 50.0]])
    loss = LOSSES.parse(text)
    target = np.array([0, 1, 1]) if loss.targets == "classes" else np.array([[1.0, 0, 1], [0, 0, 1]])
    values, found = loss.gradient(logits, target, None, logits=True)
    assert np.isfinite(values).all()
    assert np.isfinite(found).all()


def test_a_function_sees_samples_outermost_and_weighs_by_sample():
    seen = []

    def half_square(outputs, targets):
        seen.append((outputs.shape, targets.shape))
        return ((outputs - targets) ** 2).sum(1) / 2, outputs - targets

    values, found = gradient(loss_of(half_square)(), LOGITS, VALUES, WEIGHTS[:, None], logits=False)
    assert seen == [((SAMPLES, CHANNELS), (SAMPLES, CHANNELS))]
    np.testing.assert_allclose(values, WEIGHTS * ((LOGITS - VALUES) ** 2).sum(1) / 2)
    np.testing.assert_allclose(found, WEIGHTS[:, None] * (LOGITS - VALUES))
