"""Which figure a scheduler watches: regression tests for monitors that looked at the wrong column."""

from __future__ import annotations

import pytest

from ringlet.errors import ConfigError
from ringlet.optim import parse_schedulers
from ringlet.optim.metric_names import is_maximised, resolve

REPORTED = {"loss": 1.0, "accuracy": 0.5, "val_loss": 2.0, "val_accuracy": 0.4}


@pytest.mark.parametrize("metric", ["val_loss", "val_accuracy", "loss", "accuracy"])
def test_a_monitor_watches_the_metric_it_names_whatever_the_order_of_the_figures(metric):
    better = {**REPORTED, metric: 0.9 if "accuracy" in metric else 0.1}
    for order in (list(REPORTED), list(reversed(REPORTED))):
        given = {"model_checkpoint_metric": metric}
        schedule = parse_schedulers("model_checkpoint", given, learning_rate=1.0)
        first, worse_elsewhere, improved = (
            REPORTED,
            {key: value if key == metric else -1.0 for key, value in REPORTED.items()},
            better,
        )
        saves = [
            schedule.on_epoch_end(epoch, {key: figures[key] for key in order}).save
            for epoch, figures in enumerate((first, worse_elsewhere, improved))
        ]
        assert saves == [True, False, True]


@pytest.mark.parametrize("name", ["early_stopping", "reduce_lr_on_plateau", "stop_at_loss", "model_checkpoint"])
def test_a_metric_that_is_not_reported_is_an_error_naming_the_available_ones(name):
    given = {f"{name}_metric": "val_acuracy", "stop_at_loss_threshold": 0.1}
    schedule = parse_schedulers(name, given, learning_rate=1.0)
    with pytest.raises(ConfigError, match=rf"'{name}': metric 'val_acuracy'.*accuracy, loss, val_accuracy, val_loss"):
        schedule.check_metrics(REPORTED)
    with pytest.raises(ConfigError, match=r"val_acuracy"):
        schedule.on_epoch_end(0, REPORTED)


def test_an_error_in_one_monitor_leaves_the_memory_of_all_as_it_was():
    given = {"early_stopping_metric": "loss", "model_checkpoint_metric": "val_iou"}
    schedule = parse_schedulers("early_stopping,model_checkpoint", given, learning_rate=1.0)
    before = schedule.state_dict()
    with pytest.raises(ConfigError):
        schedule.on_epoch_end(0, REPORTED)
    assert schedule.state_dict() == before


def test_a_validation_metric_without_validation_data_says_so():
    with pytest.raises(ConfigError, match=r"no validation data"):
        resolve("val_loss", ["loss", "accuracy"])


@pytest.mark.parametrize(
    ("name", "available", "expected"),
    [
        (None, ["loss", "val_loss"], "val_loss"),
        (None, ["loss", "accuracy"], "loss"),
        ("val_accuracy", REPORTED, "val_accuracy"),
        ("val_categorical_accuracy", REPORTED, "val_accuracy"),
        ("val_categorical_cross_entropy", REPORTED, "val_loss"),
        ("categorical_cross_entropy", REPORTED, "loss"),
        ("accuracy", ["categorical_accuracy", "loss"], "categorical_accuracy"),
        ("val_mse", ["val_loss", "val_mse"], "val_mse"),
        ("val_mse", ["val_loss"], "val_loss"),
        ("val_dice_coef", ["val_dice", "val_loss"], "val_dice"),
    ],
)
def test_other_names_of_a_metric_lead_to_it(name, available, expected):
    assert resolve(name, available) == expected


def test_the_dice_coefficient_is_never_mistaken_for_the_dice_loss():
    with pytest.raises(ConfigError):
        resolve("val_dice", ["val_loss", "loss"])


@pytest.mark.parametrize(
    ("name", "maximised"),
    [
        ("accuracy", True),
        ("val_accuracy", True),
        ("val_categorical_accuracy", True),
        ("top5_accuracy", True),
        ("val_top5", True),
        ("dice", True),
        ("val_dice_coef", True),
        ("iou", True),
        ("loss", False),
        ("val_loss", False),
        ("dice_loss", False),
        ("dice_coef_loss", False),
        ("val_mse", False),
        ("hinge", False),
        ("categorical_cross_entropy", False),
    ],
)
def test_the_better_direction_follows_from_the_name(name, maximised):
    assert is_maximised(name) is maximised
