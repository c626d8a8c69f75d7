"""Which loss fits which task, and what people are told if one does not."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import RunConfig
from ringlet.component import OptionError
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.losses import LOSSES, loss
from ringlet.losses.functions import loss_of
from ringlet.optim.metric_names import is_maximised


@pytest.mark.parametrize(
    ("task", "num_outputs", "expected"),
    [
        ("classification", 3, "categorical_cross_entropy"),
        ("multilabel", 3, "binary_cross_entropy"),
        ("segmentation", 1, "bce_dice"),
        ("segmentation", 4, "categorical_cross_entropy"),
        ("regression", 2, "mse"),
    ],
)
def test_the_usual_loss_follows_from_the_task(task, num_outputs, expected):
    assert LOSSES.create("auto").for_task(task, num_outputs).name == expected


@pytest.mark.parametrize(
    ("name", "task", "num_outputs", "message"),
    [
        ("cross_entropy", "regression", 1, r"does not fit regression.*mse, mae or huber"),
        ("cross_entropy", "multilabel", 4, r"does not fit multilabel.*binary_cross_entropy"),
        ("cross_entropy", "segmentation", 1, r"at least two of them"),
        ("dice", "regression", 1, r"it is for classification and multilabel and segmentation"),
    ],
)
def test_a_loss_that_makes_no_sense_for_a_task_is_refused(name, task, num_outputs, message):
    with pytest.raises(ConfigError, match=message):
        LOSSES.create(name).for_task(task, num_outputs)


def test_focal_has_a_form_for_outputs_that_do_not_exclude_each_other():
    assert str(LOSSES.parse("focal,gamma=3").for_task("multilabel", 5)) == "binary_focal,gamma=3.0"
    assert str(LOSSES.parse("focal,gamma=3").for_task("classification", 5)) == "focal,gamma=3.0"


@pytest.mark.parametrize("name", ["bce", "dice_loss", "categorical-cross-entropy", "BCE_dice_loss", "l1", "smooth_l1"])
def test_other_names_of_losses_are_known_and_none_is_maximised(name):
    assert LOSSES.create(name).name in LOSSES.names()
    assert not is_maximised(f"val_{name}") or name == "dice"


def test_options_are_checked_and_names_suggested():
    with pytest.raises(OptionError, match=r"label_smoothing: 1.5 is out of range"):
        LOSSES.create("cross_entropy", label_smoothing=1.5)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'huber'"):
        LOSSES.create("hubre")


@pytest.mark.parametrize(
    "given",
    [
        {"loss": "focal,gamma=3"},
        {"loss": {"name": "focal", "gamma": 3.0}},
        {"loss": "focal", "loss.gamma": 3.0},
        {"loss_func": "accuracy,focal", "loss.gamma": 3.0},
        {"training": {"loss": "focal"}, "loss.gamma": 3.0},
        {"loss": LOSSES.create("focal", gamma=3.0)},
    ],
    ids=str,
)
def test_a_configuration_takes_a_loss_in_every_form(given):
    config = RunConfig(**given)
    assert str(config.loss) == "focal,gamma=3.0"
    assert RunConfig(**config.to_dict()) == config
    assert [metric.name for metric in config.metrics] == (["accuracy"] if "loss_func" in given else [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("balanced", "balanced"),
        ("1, 2.5,3", (1.0, 2.5, 3.0)),
        ([1, 2], (1.0, 2.0)),
        (np.array([1, 2]), (1.0, 2.0)),
        ({0: 1, 1: 5.0}, {"0": 1.0, "1": 5.0}),
        ("cat=2,dog=0.5", {"cat": 2.0, "dog": 0.5}),
    ],
)
def test_class_weights_are_taken_in_every_form_and_by_the_name_that_keras_has(given, expected):
    for name in ("class_weights", "class_weight"):
        config = RunConfig(**{name: given})
        assert config.training.class_weights == expected
        assert RunConfig(**config.to_dict()) == config


@pytest.mark.parametrize(("given", "message"), [("balence", "expected balanced"), ([1, -2], "received -2"), (3, "")])
def test_class_weights_that_are_none_are_refused(given, message):
    with pytest.raises(ConfigError, match=f"class_weights.*{message}"):
        RunConfig(class_weights=given)


def test_a_decorated_function_is_known_by_its_name():
    @loss
    def cubic_errors(outputs, targets):
        """Errors to the third power."""
        return abs(outputs - targets) ** 3

    try:
        assert RunConfig(loss="cubic_errors").loss.summary() == "Errors to the third power"
    finally:
        del LOSSES._entries["cubicerrors"]
    assert issubclass(cubic_errors, LOSSES.find("mse").__mro__[2])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda outputs, _: outputs.sum(), "each sample's loss \\(n,\\) and the gradient"),
        (lambda outputs, _: (outputs, outputs), "gave losses of shape \\(5, 2\\): expected \\(5,\\)"),
        (lambda outputs, _: (outputs[:, 0], outputs[:, 0]), "gave a gradient of shape \\(5,\\): expected \\(5, 2\\)"),
    ],
)
def test_functions_that_give_something_else_are_refused_with_shapes(function, message):
    with pytest.raises(UsageError, match=message):
        loss_of(function)().gradient(np.zeros((2, 5)), np.zeros((2, 5)), None, logits=False)


def test_weights_of_labels_cannot_be_applied_to_a_function():
    own = loss_of(lambda outputs, _: (outputs[:, 0], outputs))()
    with pytest.raises(UsageError, match="weigh within the function"):
        own.gradient(np.zeros((2, 5)), np.zeros((2, 5)), np.ones((2, 5)), logits=False)
