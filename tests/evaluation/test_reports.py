"""Reports against formulas written out in NumPy, which are those of scikit-learn; however samples are spread."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from ringlet.comm.single import SingleCommunicator
from ringlet.data.source import ArraySource
from ringlet.errors import ConfigError, DataError
from ringlet.evaluation import Report
from ringlet.evaluation.exact import ExactSums
from ringlet.evaluation.report import make_report, make_tally

RNG = np.random.default_rng(7)
NAMES = ("ant", "bee", "cat", "dog")


class FakeSource:
    """Samples that no one reads."""

    input_shape = (3,)

    def __init__(self, task: str, num_classes: int) -> None:
        self.task, self.num_classes = task, num_classes


def report_on(
    task: str, outputs: np.ndarray, targets: np.ndarray, names: tuple[str, ...] = NAMES, parts: int = 1
) -> Report:
    """The report of a pass over ``parts`` batches."""
    tally = make_tally(task, names, outputs.shape[1], 5)
    for part in np.array_split(np.arange(len(outputs)), parts):
        tally.take(part, outputs[part], targets[part])
    return make_report(tally, FakeSource(task, outputs.shape[1]), {"loss": 0.5}, SingleCommunicator(), split="test")


def probabilities(count: int, num_classes: int, *pixels: int) -> np.ndarray:
    values = RNG.random((count, num_classes, *pixels)) ** 4
    return (values / values.sum(axis=1, keepdims=True)).astype(np.float32)


def test_scores_of_classes_follow_their_definitions() -> None:
    outputs, truth = probabilities(300, 4), RNG.integers(0, 4, 300)
    report, predicted = report_on("classification", outputs, truth, parts=7), outputs.argmax(axis=1)
    for index, one in enumerate(report.classes):
        right = np.sum((truth == index) & (predicted == index))
        precision, recall = right / np.sum(predicted == index), right / np.sum(truth == index)
        assert (one.name, one.support) == (NAMES[index], np.sum(truth == index))
        assert (one.precision, one.recall) == pytest.approx((precision, recall))
        assert one.f1 == pytest.approx(2 * precision * recall / (precision + recall))
    supports = np.array([one.support for one in report.classes])
    f1 = np.array([one.f1 for one in report.classes])
    assert report.averages["macro"]["f1"] == pytest.approx(f1.mean())
    assert report.averages["weighted"]["f1"] == pytest.approx((f1 * supports).sum() / 300)
    assert report.averages["weighted"]["recall"] == pytest.approx(np.mean(truth == predicted))


def test_the_confusion_matrix_counts_truth_in_rows() -> None:
    outputs, truth = probabilities(200, 4), RNG.integers(0, 4, 200)
    report = report_on("classification", outputs, truth)
    expected = np.zeros((4, 4), int)
    for right, found in zip(truth, outputs.argmax(axis=1), strict=True):
        expected[right, found] += 1
    np.testing.assert_array_equal(report.confusion, expected)
    first = report.confusions(1)[0]
    off = expected - np.diag(np.diag(expected))
    assert first.count == off.max()
    assert first.share == pytest.approx(off.max() / expected[NAMES.index(first.truth)].sum())


def test_classes_that_occur_nowhere_count_in_no_mean() -> None:
    outputs = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], np.float32)
    report = report_on("classification", outputs, np.array([0, 1]), ("a", "b", "c"))
    assert (report.classes[2].support, report.classes[2].precision) == (0, 0.0)
    assert report.averages["macro"]["f1"] == 1.0


def test_calibration_is_that_of_fifteen_bins() -> None:
    outputs, truth = probabilities(500, 3), RNG.integers(0, 3, 500)
    calibration = report_on("classification", outputs, truth, parts=4).calibration
    confidence, right = outputs.max(axis=1).astype(float), outputs.argmax(axis=1) == truth
    error = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert calibration is not None
    assert calibration.ece == pytest.approx(error, abs=1e-6)
    assert sum(one.count for one in calibration.bins) == 500
    assert calibration.accuracy == right.mean()


def test_the_most_confident_wrong_samples_come_first() -> None:
    outputs, truth = probabilities(100, 4), RNG.integers(0, 4, 100)
    examples = report_on("classification", outputs, truth, parts=6).examples["most_confident_wrong"]
    wrong = np.flatnonzero(outputs.argmax(axis=1) != truth)
    order = wrong[np.argsort(-outputs[wrong].max(axis=1), kind="stable")][:5]
    assert [one.index for one in examples] == order.tolist()
    assert examples[0].truth == NAMES[truth[order[0]]]
    assert examples[0].confidence == pytest.approx(float(outputs[order[0]].max()))


@pytest.mark.parametrize("value", [0.5, 0.49999997])
def test_a_single_output_says_yes_from_one_half_on(value: float) -> None:
    report = report_on("classification", np.array([[value]], np.float32), np.array([1]), ("spam",))
    assert report.names == ("not spam", "spam")
    assert report.classes[1].num_right == (1 if value == 0.5 else 0)


def test_pixels_of_masks_have_iou_and_dice_of_every_class() -> None:
    outputs, truth = probabilities(6, 3, 5, 4), RNG.integers(0, 3, (6, 5, 4))
    report, predicted = report_on("segmentation", outputs, truth, parts=3), outputs.argmax(axis=1)
    for index, one in enumerate(report.classes):
        both = np.sum((truth == index) & (predicted == index))
        either = np.sum((truth == index) | (predicted == index))
        assert one.iou == pytest.approx(both / either)
        assert one.dice == pytest.approx(2 * both / (np.sum(truth == index) + np.sum(predicted == index)))
    overlaps = [
        np.mean([np.sum((t == k) & (p == k)) / np.sum((t == k) | (p == k)) for k in range(3)])
        for t, p in zip(truth, predicted, strict=True)
    ]
    worst = report.examples["worst"]
    assert [one.index for one in worst] == np.argsort(overlaps, kind="stable")[:5].tolist()
    assert worst[0].iou == pytest.approx(min(overlaps))
    np.testing.assert_array_equal(report.masks[worst[0].index], predicted[worst[0].index])


def test_a_mask_of_one_object_is_compared_by_the_object_alone() -> None:
    outputs = np.zeros((2, 1, 2, 2), np.float32)
    outputs[0, 0, 0] = 0.9
    targets = np.zeros((2, 1, 2, 2), np.float32)
    targets[0, 0, :, 0] = 1
    report = report_on("segmentation", outputs, targets, ("background", "object"))
    by_index = {one.index: one.iou for one in report.examples["worst"]}
    assert by_index == {0: pytest.approx(1 / 3), 1: 1.0}
    assert report.classes[1].iou == pytest.approx(1 / 3)


def test_labels_are_counted_one_by_one() -> None:
    outputs, truth = RNG.random((80, 4)).astype(np.float32), (RNG.random((80, 4)) < 0.3).astype(np.float32)
    report, predicted = report_on("multilabel", outputs, truth, parts=5), outputs >= 0.5
    wanted = truth.astype(bool)
    for index, one in enumerate(report.classes):
        right = np.sum(predicted[:, index] & wanted[:, index])
        assert one.precision == pytest.approx(right / predicted[:, index].sum())
        assert one.recall == pytest.approx(right / wanted[:, index].sum())
    micro = 2 * np.sum(predicted & wanted) / (predicted.sum() + wanted.sum())
    assert report.averages["micro"]["f1"] == pytest.approx(micro)
    first = report.examples["most_confident_wrong"][0]
    gaps = np.where(predicted != wanted, np.abs(outputs.astype(float) - wanted), 0)
    assert (first.index, first.score) == (gaps.max(axis=1).argmax(), pytest.approx(gaps.max()))


def test_errors_of_numbers_are_those_of_every_output() -> None:
    truth = (RNG.standard_normal((90, 2)) * [1, 1000]).astype(np.float32)
    outputs = (truth + RNG.standard_normal((90, 2)) * [0.1, 50]).astype(np.float32)
    report = report_on("regression", outputs, truth, ("x", "y"), parts=4)
    errors = outputs.astype(float) - truth
    for index, one in enumerate(report.outputs):
        error, target = errors[:, index], truth[:, index].astype(float)
        assert one.mae == pytest.approx(np.abs(error).mean(), rel=1e-12)
        assert one.rmse == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
        assert one.r2 == pytest.approx(1 - (error**2).sum() / ((target - target.mean()) ** 2).sum(), rel=1e-12)
        assert (one.bias, one.max_error) == pytest.approx((error.mean(), np.abs(error).max()))
    assert report.examples["worst"][0].index == (errors**2).mean(axis=1).argmax()


@pytest.mark.parametrize(("found", "expected"), [(0.1, 1.0), (0.2, 0.0)])
def test_the_variance_of_a_constant_is_explained_by_meeting_it(found: float, expected: float) -> None:
    truth = np.full((9, 1), 0.1, np.float32)
    report = report_on("regression", np.full_like(truth, found), truth, ("x",))
    assert report.outputs[0].r2 == expected


def test_numbers_that_are_not_finite_leave_errors_unknown_and_valid_json() -> None:
    outputs = np.array([[np.nan], [1.0]], np.float32)
    report = report_on("regression", outputs, np.zeros((2, 1), np.float32), ("x",))
    assert report.outputs[0].mae is None
    assert report.examples["worst"][0].index == 0
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("task", ["classification", "segmentation", "multilabel", "regression"])
def test_any_split_into_batches_gives_the_same_bits(task: str) -> None:
    rng = np.random.default_rng(3)
    shape = (40, 4, 6, 6) if task == "segmentation" else (40, 4)
    outputs = (rng.standard_normal(shape) * 1e5 if task == "regression" else rng.random(shape)).astype(np.float32)
    targets = {
        "classification": rng.integers(0, 4, 40),
        "segmentation": rng.integers(0, 4, (40, 6, 6)),
        "multilabel": (rng.random((40, 4)) < 0.5).astype(np.float32),
        "regression": rng.standard_normal((40, 4)).astype(np.float32),
    }[task]
    documents = {json.dumps(report_on(task, outputs, targets, parts=parts).to_dict()) for parts in (1, 3, 40)}
    assert len(documents) == 1


def test_exact_sums_lose_nothing_between_huge_and_tiny_numbers() -> None:
    values = np.array([[1e300, 1.0], [1.0, 1e-300], [-1e300, -1.0], [5e-324, 2.0]])
    whole, left, right = ExactSums(2), ExactSums(2), ExactSums(2)
    whole.add(values)
    left.add(values[:1])
    right.add(values[1:])
    left.merge(right.state)
    assert whole.totals() == left.totals()
    assert whole.totals() == [sum(map(Fraction, column)) for column in values.T.tolist()]
    assert float(whole.totals()[0]) == math.fsum(values[:, 0])


def test_more_than_a_thousand_classes_have_scores_but_no_matrix() -> None:
    outputs, truth = probabilities(5, 1001), np.array([0, 1, 2, 3, 1000])
    report = report_on("classification", outputs, truth, ())
    assert (report.confusion, report.confusions(), len(report.classes)) == (None, [], 1001)
    assert report.classes[1000].name == "1000"


def test_targets_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(DataError, match="do not fit outputs of shape"):
        report_on("classification", probabilities(3, 4), np.array([0, 1, 4]))
    with pytest.raises(ConfigError, match="no report for task 'poetry'"):
        make_tally("poetry", (), 3)


def test_the_source_of_a_report_is_not_part_of_its_value() -> None:
    outputs, truth = probabilities(10, 4), RNG.integers(0, 4, 10)
    source = ArraySource(np.zeros((10, 3)), truth, 4)
    first = report_on("classification", outputs, truth)
    tally = make_tally("classification", NAMES, 4, 5)
    tally.take(np.arange(10), outputs, truth)
    assert make_report(tally, source, {"loss": 0.5}, SingleCommunicator(), split="test") == first
