"""Learning rates over time: against PyTorch's schedulers where both mean the same, else against the definition."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ringlet.errors import ConfigError, UnknownNameError
from ringlet.optim import Schedule, parse_schedulers
from ringlet.optim.schedules import SCHEDULES, Cosine, RangeTest, WarmUp

RATE = 0.4
NUM_EPOCHS = 24


def rates_of(schedule):
    return [schedule.learning_rate(epoch) for epoch in range(NUM_EPOCHS)]


def torch_rates(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = make(optimizer)
    rates = []
    for _ in range(NUM_EPOCHS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


LR = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("schedulers", "given", "make"),
    [
        ("warm_up", {"warm_up_start_lr": 0.1}, lambda o: LR.LinearLR(o, 0.25, total_iters=5)),
        ("cosine", {"cosine_min_lr": 0.05}, lambda o: LR.CosineAnnealingLR(o, NUM_EPOCHS, eta_min=0.05)),
        ("step", {"step_every": 7, "step_factor": 0.5}, lambda o: LR.StepLR(o, 7, gamma=0.5)),
        ("step", {"step_milestones": "3,10,11"}, lambda o: LR.MultiStepLR(o, [3, 10, 11], gamma=0.1)),
        (
            "reduce_lr_every_nepochs",
            {"reduce_lr_every_nepochs_nepochs": 4, "reduce_lr_every_nepochs_factor": 0.3},
            lambda o: LR.StepLR(o, 4, gamma=0.3),
        ),
        (
            "warm_up,cosine",
            {"warm_up_epochs": 4, "warm_up_start_lr": 0.1},
            lambda o: LR.SequentialLR(
                o, [LR.LinearLR(o, 0.25, total_iters=4), LR.CosineAnnealingLR(o, NUM_EPOCHS - 4)], milestones=[4]
            ),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
def test_rates_equal_those_of_pytorch(schedulers, given, make):
    schedule = parse_schedulers(schedulers, given, learning_rate=RATE, num_epochs=NUM_EPOCHS)
    assert rates_of(schedule) == pytest.approx(torch_rates(make), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("metric", "mode"), [("val_loss", "min"), ("val_accuracy", "max")])
def test_reduction_on_plateau_equals_pytorchs_with_one_epoch_less_patience(metric, mode):
    values = [1.0, 0.8, 0.9, 0.85, 0.81, 0.79, 0.79, 0.9, 1.2, 1.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]
    schedule = parse_schedulers(
        "reduce_lr_on_plateau",
        {
            "reduce_lr_on_plateau_metric": metric,
            "reduce_lr_on_plateau_patience": 3,
            "reduce_lr_on_plateau_factor": 0.5,
            "reduce_lr_on_plateau_min_lr": 0.1,
        },
        learning_rate=RATE,
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    theirs = LR.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=2, threshold=0.0, min_lr=0.1)
    for epoch, value in enumerate(values):
        theirs.step(value)
        schedule.on_epoch_end(epoch, {metric: value})
        assert schedule.learning_rate(epoch + 1) == pytest.approx(optimizer.param_groups[0]["lr"])
    assert schedule.learning_rate(len(values)) < RATE


def test_without_rules_the_rate_is_constant():
    schedule = parse_schedulers("", learning_rate=RATE)
    assert set(rates_of(schedule)) == {RATE}
    assert schedule.on_epoch_end(0, {}).stop_reason is None


def test_warm_up_rises_from_the_rate_of_one_worker_to_that_of_all():
    schedule = parse_schedulers("warm_up", {"warm_up_epochs": 2}, learning_rate=RATE, size=4)
    rates = [schedule.learning_rate(epoch) for epoch in (0, 0.5, 1, 1.5, 2, 9)]
    assert rates == pytest.approx([0.1, 0.175, 0.25, 0.325, 0.4, 0.4])


def test_warm_up_can_count_steps():
    schedule = parse_schedulers("warm_up", {"warm_up_steps": 10, "warm_up_start_lr": 0.0}, learning_rate=RATE)
    assert [schedule.learning_rate(0.0, step) for step in (0, 5, 10)] == pytest.approx([0, 0.2, 0.4])


def test_warm_up_of_no_epochs_is_the_full_rate_at_once():
    assert parse_schedulers("warm_up", {"warm_up_epochs": 0}, learning_rate=RATE, size=8).learning_rate(0) == RATE


def test_a_minimum_does_not_lift_a_rate_that_warm_up_keeps_below_it():
    schedule = parse_schedulers(
        "warm_up,reduce_lr_every_nepochs",
        {"warm_up_start_lr": 0.0, "reduce_lr_every_nepochs_min_lr": 0.3},
        learning_rate=RATE,
    )
    assert schedule.learning_rate(1) == pytest.approx(0.08)
    assert schedule.learning_rate(20) == pytest.approx(0.3)


@given(st.floats(0, 100), st.integers(0, 10**6))
def test_no_composition_leaves_the_interval_from_zero_to_the_full_rate(epoch, step):
    given = {"step_every": 3, "warm_up_start_lr": 0.01}
    schedule = parse_schedulers("warm_up,cosine,step", given, learning_rate=RATE, num_epochs=50)
    assert 0 <= schedule.learning_rate(epoch, step) <= RATE


def test_early_stopping_waits_for_its_patience_and_says_why():
    schedule = parse_schedulers("early_stopping", {"early_stopping_patience": 2}, learning_rate=RATE)
    reasons = [schedule.on_epoch_end(epoch, {"val_loss": loss}).stop_reason for epoch, loss in enumerate([3, 2, 2, 4])]
    assert reasons[:3] == [None] * 3
    assert reasons[3] == "early stopping: val_loss did not improve for 2 epochs (best 2 after epoch 2)"


def test_default_patiences_are_five_and_ten():
    assert SCHEDULES.create("reduce_lr_on_plateau").patience == 5
    assert SCHEDULES.create("early_stopping").patience == 10
    assert SCHEDULES.create("warm_up").epochs == 5


@pytest.mark.parametrize(
    ("metric", "threshold", "values", "stops"),
    [
        ("val_loss", 0.1, [0.3, 0.11, 0.1], [False, False, True]),
        ("val_accuracy", 0.9, [0.3, 0.89, 0.95], [False, False, True]),
        ("loss", 0.1, [math.nan, math.nan, 0.05], [False, False, True]),
    ],
)
def test_stop_at_loss_stops_when_the_threshold_is_reached(metric, threshold, values, stops):
    given = {"stop_at_loss_metric": metric, "stop_at_loss_threshold": threshold}
    schedule = parse_schedulers("stop_at_loss", given, learning_rate=RATE)
    reasons = [schedule.on_epoch_end(epoch, {metric: value}).stop_reason for epoch, value in enumerate(values)]
    assert [reason is not None for reason in reasons] == stops
    assert f"{metric} " in str(reasons[-1])


def test_model_checkpoint_asks_to_save_only_what_is_better():
    given = {"model_checkpoint_metric": "val_accuracy", "model_checkpoint_save_freq": 2}
    schedule = parse_schedulers("model_checkpoint", given, learning_rate=RATE)
    values = [0.9, 0.5, 0.7, 0.6, 0.9, 0.6]
    saves = [schedule.on_epoch_end(epoch, {"val_accuracy": value}).save for epoch, value in enumerate(values)]
    assert saves == [False, True, False, True, False, False]


def test_a_decision_carries_the_factor_and_a_message():
    schedule = parse_schedulers("reduce_lr_on_plateau", {"reduce_lr_on_plateau_patience": 1}, learning_rate=RATE)
    assert schedule.on_epoch_end(0, {"loss": 1.0}).factor == 1
    decision = schedule.on_epoch_end(1, {"loss": 1.0})
    assert decision.factor == 0.1
    assert "loss did not improve for 1 epoch (best 1 after epoch 1)" in decision.messages[0]


def test_values_that_are_not_numbers_count_as_not_improved():
    schedule = parse_schedulers("early_stopping", {"early_stopping_patience": 2}, learning_rate=RATE)
    schedule.on_epoch_end(0, {"loss": math.nan})
    assert "never was a number" in str(schedule.on_epoch_end(1, {"loss": math.nan}).stop_reason)


ALL_MONITORS = "warm_up,cosine,reduce_lr_on_plateau,early_stopping,stop_at_loss,model_checkpoint"


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=30), st.data())
def test_a_resumed_schedule_decides_as_the_undisturbed_one(losses, data):
    def make():
        given = {"stop_at_loss_threshold": 0.02, "reduce_lr_on_plateau_patience": 2, "early_stopping_patience": 4}
        return parse_schedulers(ALL_MONITORS, given, learning_rate=RATE, num_epochs=30, size=2)

    cut = data.draw(st.integers(0, len(losses)))
    undisturbed, resumed = make(), make()
    decisions = [undisturbed.on_epoch_end(epoch, {"loss": loss}) for epoch, loss in enumerate(losses)]
    for epoch, loss in enumerate(losses):
        if epoch == cut:
            saved = json.dumps(resumed.state_dict(), allow_nan=False)
            resumed = make()
            resumed.load_state_dict(json.loads(saved))
        assert resumed.on_epoch_end(epoch, {"loss": loss}) == decisions[epoch]
    assert resumed.learning_rate(17.25, 99) == undisturbed.learning_rate(17.25, 99)
    assert resumed.state_dict() == undisturbed.state_dict()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"format": 1, "rules": "x"},
        {"format": 1, "rules": [{"name": "warm_up"}]},
        {"format": 1, "rules": [3]},
        {"format": 1, "rules": [{"name": "early_stopping"}]},
        {
            "format": 1,
            "rules": [
                {"name": "early_stopping", "best": "x", "best_epoch": 1, "num_bad_epochs": 0, "num_reductions": 0}
            ],
        },
    ],
)
def test_a_foreign_or_damaged_state_is_refused(state):
    with pytest.raises(ConfigError):
        parse_schedulers("early_stopping", learning_rate=RATE).load_state_dict(state)


def test_an_unknown_scheduler_is_an_error_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match=r"unknown scheduler 'warmap'.*Did you mean 'warm_up'"):
        parse_schedulers("warmap", learning_rate=RATE)


@pytest.mark.parametrize(
    ("schedulers", "given", "message"),
    [
        ("warm_up", {"warm_up_epoch": 3}, r"option 'warm_up_epoch'.*Did you mean 'warm_up_epochs'"),
        ("warm_up,warm_up", {}, r"one is named twice"),
        ("warm_up", {"warm_up_epochs": -1}, r"epochs: -1 is out of range, expected at least 0"),
        ("warm_up", {"warm_up_start_lr": 9.0}, r"start_lr=9 is above the learning rate 0\.4"),
        ("cosine", {}, r"give num_epochs or cosine_epochs"),
        ("warm_up,cosine", {"cosine_epochs": 5}, r"nothing is left"),
        ("step", {}, r"give exactly one"),
        ("step", {"step_milestones": ("a",)}, r"milestones: "),
        ("step", {"step_milestones": [-1]}, r"milestones: \[-1\.0\] is out of range, expected epochs of at least 0"),
        ("stop_at_loss", {}, r"threshold: scheduler 'stop_at_loss' needs a value"),
        ("early_stopping", {"early_stopping_patience": 0}, r"patience: 0 is out of range, expected at least 1"),
        ("early_stopping", {"early_stopping_patience": 2.5}, r"patience: expected a whole number, received 2\.5"),
        ("reduce_lr_on_plateau", {"reduce_lr_on_plateau_factor": 1.0}, r"factor: 1\.0 is out of range, .* less than 1"),
    ],
)
def test_options_that_make_no_sense_are_named(schedulers, given, message):
    with pytest.raises(ConfigError, match=message):
        parse_schedulers(schedulers, given, learning_rate=RATE)


def test_option_names_take_dashes_and_none_means_the_default():
    given = {"warm-up-epochs": 2, "early_stopping_patience": None}
    schedule = parse_schedulers("Warm-Up, early_stopping", given, learning_rate=RATE)
    assert [rule.name for rule in schedule.rules] == ["warm_up", "early_stopping"]


def test_the_defaults_of_all_options_may_be_passed_back():
    given = {f"{rule.name}_{name}": value for rule in (WarmUp(), Cosine()) for name, value in rule.values().items()}
    schedule = parse_schedulers("warm_up,cosine,early_stopping", given, learning_rate=RATE, num_epochs=9)
    assert len(schedule.rules) == 3


@pytest.mark.parametrize("learning_rate", [0.0, -1.0, math.nan, math.inf])
def test_a_base_rate_that_makes_no_sense_is_refused(learning_rate):
    with pytest.raises(ConfigError, match=r"learning_rate=.*expected a finite number > 0"):
        Schedule(learning_rate)


def test_all_schedulers_of_the_design_exist():
    assert set(SCHEDULES.names()) == {
        "warm_up", "cosine", "step", "reduce_lr_every_nepochs", "reduce_lr_on_plateau", "early_stopping",
        "stop_at_loss", "model_checkpoint", "range_test",
    }  # fmt: skip


def test_a_range_test_grows_by_one_factor_from_the_first_rate_to_the_last():
    schedule = Schedule(1e-3, (RangeTest(end_lr=1.0, steps=4),))
    assert [schedule.learning_rate(0.0, step) for step in range(6)] == pytest.approx([1e-3, 1e-2, 1e-1, 1, 1, 1])
    scaled = Schedule(4e-3, (RangeTest(end_lr=1.0, steps=4),), size=4)
    assert [scaled.learning_rate(0.0, step) for step in (0, 3)] == pytest.approx([4e-3, 4.0])
    with pytest.raises(ConfigError, match="is not above the learning rate"):
        Schedule(1.0, (RangeTest(end_lr=0.5),))
