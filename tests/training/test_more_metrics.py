"""Metrics of several sums against the definitions, written out; and metrics that are functions."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.errors import ConfigError, DataError, UsageError
from ringlet.metrics import METRICS, metric
from ringlet.metrics.base import measures
from ringlet.metrics.functions import metric_of
from ringlet.optim.metric_names import is_maximised

RANDOM = np.random.default_rng(8)


def value(text, task, outputs, targets):
    found = measures([text], task, outputs.shape[1])[0]
    return found.final(found.sums(outputs, targets), len(outputs))


def by_hand(predicted, wanted):
    """Precision, recall and F1 of one class from its decisions, 0 where there is nothing to divide by."""
    right = (predicted & wanted).sum()
    precision = right / predicted.sum() if predicted.any() else 0.0
    recall = right / wanted.sum() if wanted.any() else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("shape", [(), (3, 2)])
@pytest.mark.parametrize("place", range(3))
def test_scores_of_classes_are_means_over_those_that_occur(place, shape, average):
    outputs = RANDOM.random((30, 5, *shape))
    outputs[:, 4] = -1  # never predicted, never wanted
    targets = RANDOM.integers(0, 3, (30, *shape))  # and 3 is predicted but never wanted
    predicted = outputs.argmax(1)
    each = [by_hand(predicted == c, targets == c)[place] for c in range(4)]
    support = np.bincount(targets.ravel(), minlength=4)
    expected = np.mean(each) if average == "macro" else np.average(each, weights=support)
    name = ("precision", "recall", "f1")[place]
    assert value(f"{name},average={average}", "segmentation" if shape else "classification", outputs, targets) == (
        pytest.approx(expected)
    )


@pytest.mark.parametrize("place", range(3))
def test_scores_of_labels_are_means_over_all_labels(place):
    outputs, targets = RANDOM.random((30, 4)), (RANDOM.random((30, 4)) < 0.4).astype(np.float32)
    outputs[:, 3], targets[:, 3] = 0, 0
    each = [by_hand(outputs[:, k] >= 0.3, targets[:, k] == 1)[place] for k in range(4)]
    name = ("precision", "recall", "f1")[place]
    assert value(f"{name},threshold=0.3", "multilabel", outputs, targets) == pytest.approx(np.mean(each))
    pooled = by_hand((outputs >= 0.5).ravel(), targets.ravel() == 1)[place]
    assert value(f"{name},average=micro", "multilabel", outputs, targets) == pytest.approx(pooled)


def test_micro_f1_of_classes_is_their_accuracy():
    outputs, targets = RANDOM.random((20, 3)), RANDOM.integers(0, 3, 20)
    accuracy = value("accuracy", "classification", outputs, targets)
    assert value("f1,average=micro", "classification", outputs, targets) == pytest.approx(accuracy)


def test_accuracy_of_labels_is_a_share_of_labels_and_exact_match_one_of_samples():
    outputs = np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.1]])
    targets = np.array([[1, 0], [1, 0], [0, 0]], np.float32)
    assert value("accuracy", "multilabel", outputs, targets) == pytest.approx(5 / 6)
    assert value("exact_match", "multilabel", outputs, targets) == pytest.approx(2 / 3)


@pytest.mark.parametrize("shape", [(), (4, 3)])
def test_rmse_and_r2_are_means_over_outputs(shape):
    outputs = RANDOM.normal(size=(25, 2, *shape))
    targets = (outputs * 0.7 + RANDOM.normal(size=outputs.shape) + 3).astype(np.float32)
    p, t = (np.moveaxis(values.astype(float), 1, 0).reshape(2, -1) for values in (outputs, targets))
    errors = ((p - t) ** 2).mean(1)
    assert value("rmse", "regression", outputs, targets) == pytest.approx(np.sqrt(errors).mean())
    assert value("r2", "regression", outputs, targets) == pytest.approx((1 - errors / t.var(1)).mean())


@pytest.mark.parametrize(("predicted", "expected"), [(2.5, 1.0), (2.0, 0.0)])
def test_r2_of_a_constant_target_is_one_if_it_is_met(predicted, expected):
    assert value("r2", "regression", np.full((6, 1), predicted), np.full((6, 1), 2.5)) == expected


@pytest.mark.parametrize(
    ("text", "task"), [("accuracy", "regression"), ("r2", "classification"), ("iou", "multilabel")]
)
def test_a_metric_that_makes_no_sense_for_a_task_is_refused_with_others(text, task):
    with pytest.raises(ConfigError, match=rf"metric '{text}' does not fit {task}.*Metrics for {task}: "):
        measures([text], task, 2)


@pytest.mark.parametrize(("name", "upward"), [("f1", True), ("val_r2", True), ("rmse", False), ("val_precision", True)])
def test_schedules_know_the_direction_of_metrics(name, upward):
    assert is_maximised(name) is upward


def test_a_function_may_give_values_or_their_mean():
    def distances(outputs, targets):
        return np.abs(outputs - targets).mean(axis=1)

    outputs, targets = RANDOM.random((7, 3)), RANDOM.random((7, 3))
    expected = np.abs(outputs - targets).mean()
    means = [distances, lambda o, t: distances(o, t).mean()]
    for function in means:
        (found,) = measures([metric_of(function)()], "regression", 3)
        assert found.final(found.sums(outputs, targets), 7) == pytest.approx(expected)
        assert found.text == ""


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda outputs, _: outputs, UsageError, r"of shape \(4, 2\): expected one number per sample, \(4,\)"),
        (lambda *_: "high", UsageError, "expected one number per sample"),
        (lambda *_: np.nan, DataError, "gave nan for outputs that are finite"),
    ],
)
def test_functions_that_give_something_else_are_refused(function, error, message):
    (found,) = measures([metric_of(function, "own")()], "classification", 2)
    with pytest.raises(error, match=f"metric 'own' gave .*{message.removeprefix('gave ')}"):
        found.sums(np.ones((4, 2)), np.zeros(4, int))


def test_a_decorated_function_says_whether_more_is_better():
    @metric(name="closeness", higher_is_better=True)
    def function(outputs, targets):
        return 1 / (1 + np.abs(outputs - targets).sum(axis=1))

    try:
        assert is_maximised("val_closeness")
        assert METRICS.create("closeness").measure("regression", 1).name == "closeness"
    finally:
        del METRICS._entries["closeness"]
    assert function.higher_is_better


def test_two_metrics_of_one_name_are_refused():
    own = metric_of(lambda outputs, _: outputs[:, 0], "accuracy")()
    with pytest.raises(ConfigError, match="'accuracy' is a name that is taken"):
        measures(["accuracy", own], "classification", 2)
