"""Metrics against PyTorch and plain NumPy, and their sums over any split of the data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.errors import DataError, UnknownNameError, UsageError
from ringlet.kernels import load
from ringlet.metrics import METRICS
from ringlet.metrics.base import measures
from ringlet.metrics.formulas import iou
from ringlet.optim.metric_names import canonical_name, split_losses
from ringlet.training.metric_sums import Meter

NUM_SAMPLES = 40
NUM_CLASSES = 10


@pytest.fixture
def scores():
    random = np.random.default_rng(3)
    outputs = torch.softmax(torch.from_numpy(random.normal(size=(NUM_SAMPLES, NUM_CLASSES))), 1).numpy()
    return outputs, random.integers(0, NUM_CLASSES, NUM_SAMPLES)


@pytest.fixture
def masks():
    random = np.random.default_rng(4)
    outputs = random.random((6, 1, 8, 9), dtype=np.float32)
    return outputs, (random.random(outputs.shape) < 0.3).astype(np.float32)


def measure(name, outputs):
    """For a task that has it, with outputs of this number."""
    fitting = METRICS.find(canonical_name(name)).tasks
    task = "segmentation" if outputs.ndim == 4 and "segmentation" in fitting else fitting[0]
    return measures([name], task, outputs.shape[1])[0]


def total(name, outputs, targets):
    (found,) = measure(name, outputs).sums(outputs, targets)
    return found, len(outputs)


def mean(name, outputs, targets):
    found = measure(name, outputs)
    return found.final(found.sums(outputs, targets), len(outputs))


def test_accuracy_counts_right_classes(scores):
    outputs, targets = scores
    assert mean("accuracy", outputs, targets) == pytest.approx((outputs.argmax(1) == targets).mean())


def test_top5_accuracy_equals_pytorchs_topk(scores):
    outputs, targets = scores
    best = torch.topk(torch.from_numpy(outputs), 5).indices.numpy()
    assert mean("top5_accuracy", outputs, targets) == pytest.approx((best == targets[:, None]).any(1).mean())


def test_hinge_is_the_largest_margin_violated_by_a_wrong_class(scores):
    outputs, targets = scores
    margins = [max(0.0, 1 + max(np.delete(row, t)) - row[t]) for row, t in zip(outputs, targets, strict=True)]
    assert mean("categorical_hinge", outputs, targets) == pytest.approx(np.mean(margins))


@pytest.mark.parametrize(("name", "theirs"), [("mse", torch.nn.MSELoss()), ("mae", torch.nn.L1Loss())])
def test_errors_of_one_hot_classes_equal_pytorchs(scores, name, theirs):
    outputs, targets = scores
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(targets), NUM_CLASSES)
    expected = float(theirs(torch.from_numpy(outputs), one_hot.double()))
    assert mean(f"categorical_{name}", outputs, targets) == pytest.approx(expected)
    assert mean(f"regression_{name}", outputs, one_hot.numpy().astype(np.float32)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["accuracy", "top5_accuracy", "hinge", "mse", "mae", "dice"])
def test_one_hot_targets_give_what_classes_give(scores, name):
    outputs, targets = scores
    assert total(name, outputs, np.eye(NUM_CLASSES)[targets]) == total(name, outputs, targets)


def test_dice_is_one_minus_the_dice_loss(masks):
    outputs, targets = masks
    lanes = 8
    packed, wanted = (np.zeros((1, 8, 9, lanes), np.float32) for _ in range(2))
    kernels = load("reference")
    kernels.pack(outputs, packed)
    kernels.pack(targets, wanted)
    loss = kernels.loss("dice", packed, wanted, None, n=len(outputs), scale=1.0)
    assert total("dice_coef", outputs, targets)[0] == pytest.approx(len(outputs) - loss, rel=1e-5)


def test_iou_of_masks_is_intersection_over_union_per_sample(masks):
    outputs, targets = masks
    predicted, wanted = outputs >= 0.5, targets >= 0.5
    expected = [(p & w).sum() / (p | w).sum() for p, w in zip(predicted, wanted, strict=True)]
    assert mean("iou", outputs, targets) == pytest.approx(np.mean(expected))


def test_iou_of_two_empty_masks_is_one():
    assert total("iou", np.zeros((2, 1, 3, 3)), np.zeros((2, 1, 3, 3))) == (2.0, 2)


def test_iou_of_classes_is_the_mean_over_those_that_occur():
    outputs = np.zeros((1, 3, 1, 4))
    outputs[0, [0, 0, 1, 1], 0, range(4)] = 1
    targets = np.array([[[0, 1, 1, 1]]])
    assert mean("iou", outputs, targets) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_accuracy_of_masks_is_the_share_of_right_pixels(masks):
    outputs, targets = masks
    assert mean("binary_accuracy", outputs, targets) == pytest.approx(((outputs >= 0.5) == (targets >= 0.5)).mean())


def test_accuracy_of_pixel_classes_is_a_mean_over_pixels():
    outputs = np.random.default_rng(5).random((3, 4, 2, 5))
    targets = np.random.default_rng(6).integers(0, 4, (3, 2, 5))
    assert mean("accuracy", outputs, targets) == pytest.approx((outputs.argmax(1) == targets).mean())


def test_a_single_output_takes_whole_numbered_classes():
    assert total("accuracy", np.array([[0.9], [0.2], [0.7]]), np.array([1, 0, 0])) == (2.0, 3)


def test_equal_outputs_are_not_all_among_the_best_five():
    assert total("top5_accuracy", np.ones((10, 10)), np.arange(10)) == (5.0, 10)


def test_outputs_that_are_not_numbers_are_not_among_the_best_five():
    assert total("top5_accuracy", np.full((2, 10), np.nan), np.array([0, 9])) == (0.0, 2)


@pytest.mark.parametrize("name", [name for name in METRICS.names() if name != "none"])
def test_no_samples_give_sums_of_zero(name):
    outputs = np.zeros((0, 6))
    assert not any(measure(name, outputs).sums(outputs, np.zeros(0, np.int64)))


SPLITTABLE = [("accuracy", True), ("top5_accuracy", True), ("dice", True), ("iou", True)]
SPLITTABLE += [("precision", True), ("recall", True), ("f1", True), ("exact_match", True)]
SPLITTABLE += [("hinge", False), ("mse", False), ("mae", False)]


@pytest.mark.parametrize(("name", "is_exact"), SPLITTABLE)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 23), max_size=5), pixels=st.booleans())
def test_any_split_of_the_data_adds_up_to_the_same_result(name, is_exact, seed, cuts, pixels):
    random = np.random.default_rng(seed)
    shape = (23, 7, 3, 5) if pixels else (23, 7)
    outputs = random.random(shape, dtype=np.float32)
    targets = random.integers(0, 7, (23, 3, 5) if pixels else 23)
    found = measure(name, outputs)
    parts = np.zeros(found.width)
    for start, stop in pairwise([0, *sorted(cuts), 23]):
        parts += found.sums(outputs[start:stop], targets[start:stop])
    whole = found.final(found.sums(outputs, targets), 23)
    assert found.final(parts.tolist(), 23) == (whole if is_exact else pytest.approx(whole, rel=1e-14))


def test_ranks_with_unequal_numbers_of_samples_are_weighed_by_samples_not_by_ranks():
    outputs = np.eye(2)[[0, 0, 0, 0, 0]]
    targets = np.array([0, 0, 0, 0, 1])  # the first rank has four right ones, the second a single wrong one
    ranks = [Meter([measure("accuracy", outputs)]) for _ in range(2)]
    ranks[0].add_totals([*total("accuracy", outputs[:4], targets[:4]), 2.0, 4])
    ranks[1].add_totals([*total("accuracy", outputs[4:], targets[4:]), 3.0, 1])
    means = [rank.means()["accuracy"] for rank in ranks]
    assert np.mean(means) == 0.5  # what a mean over ranks would say
    summed = Meter([measure("accuracy", outputs)])
    for rank in ranks:
        summed.add_totals(rank.totals)
    assert summed.means() == {"accuracy": 0.8, "loss": 1.0}
    assert summed.means("val_") == {"val_accuracy": 0.8, "val_loss": 1.0}
    assert summed.totals == [4.0, 5.0, 5.0, 5.0]
    assert summed.num_samples == 5


def test_totals_of_other_figures_are_refused():
    with pytest.raises(ValueError, match="2 totals for a meter of 4"):
        Meter([measure("accuracy", np.zeros((1, 2)))]).add_totals([1.0, 2.0])


def test_the_mean_over_nothing_is_an_error_and_not_nan():
    with pytest.raises(DataError, match=r"over 0 samples"):
        Meter([]).means()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("categorical_accuracy", "accuracy"),
        ("Accuracy", "accuracy"),
        ("top5", "top5_accuracy"),
        ("categorical_hinge", "hinge"),
        ("categorical_mse", "mse"),
        ("categorical_mae", "mae"),
        ("regression_mse", "mse"),
        ("regression_mae", "mae"),
        ("dice_coef", "dice"),
    ],
)
def test_other_names_lead_to_a_metrics_own(name, expected):
    assert canonical_name(name) == expected


def test_an_unknown_metric_is_an_error_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match=r"unknown metric 'acuracy'.*Did you mean 'accuracy'"):
        canonical_name("acuracy")


def test_a_loss_is_no_metric():
    with pytest.raises(UsageError, match=r"'categorical_cross_entropy' is a loss"):
        canonical_name("categorical_cross_entropy")


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ("categorical_accuracy,categorical_cross_entropy", ("categorical_cross_entropy", ["accuracy"])),
        ("accuracy,hinge,mse,categorical_cross_entropy", ("categorical_cross_entropy", ["accuracy", "hinge", "mse"])),
        ("mae,mse", ("mse", ["mae"])),
        ("dice", ("dice", [])),
        ("accuracy", (None, ["accuracy"])),
        ("", (None, [])),
    ],
)
def test_a_list_of_functions_is_taken_apart_into_loss_and_metrics(functions, expected):
    assert split_losses(functions) == expected


def test_two_losses_are_refused():
    with pytest.raises(UsageError, match=r"one loss can be minimised, but 2"):
        split_losses("categorical_cross_entropy,binary_cross_entropy")


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "message"),
    [
        ("accuracy", np.ones((2, 3)), np.array([0, 3]), r"classes from 0 to 3, but the network has 3 outputs"),
        ("accuracy", np.ones((2, 3)), np.array([0, -1]), r"classes from -1 to 0"),
        ("accuracy", np.ones((2, 3)), np.array([0, 1, 2]), r"targets of shape \(3,\).*do not fit"),
        ("mse", np.ones((2, 3)), np.ones((2, 4)), r"do not fit outputs of shape \(2, 3\)"),
        ("mse", np.ones((2, 3)), np.ones(2), r"type float64 do not fit"),
    ],
)
def test_targets_that_do_not_fit_are_named_with_their_shapes(name, outputs, targets, message):
    with pytest.raises(DataError, match=message):
        total(name, outputs, targets)


def test_outputs_without_channels_are_refused():
    with pytest.raises(DataError, match=r"outputs have shape \(2,\)"):
        iou(np.ones(2), np.ones(2))


def test_hinge_of_a_single_output_is_refused():
    with pytest.raises(UsageError, match=r"compares classes"):
        total("hinge", np.ones((2, 1)), np.array([0, 1]))
