"""Spaces: what texts mean, and that the values of a trial follow from the seed, its number and the option alone."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.config.assembly import Given
from ringlet.errors import ConfigError
from ringlet.tuning.options import SearchOptions, prepare
from ringlet.tuning.space import applicable, parse_space, share_of, split_assignments

SPACE = {
    "optimizer.learning_rate": "log(1e-4,1e-1)",
    "optimizer.name": "sgd,adam",
    "global_batch_size": "log(16,256)",
    "validation_split": "uniform(0.1, 0.5)",
    "accumulate": "int(1,4)",
    "schedule": "warm_up,cosine|step",
    "learning_rate_scaling": "true,false",
}


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(1, 10_000))
def test_values_lie_in_the_space_and_have_the_types_of_their_options(seed: int, trial: int) -> None:
    values = parse_space(SPACE)._drawn(seed, trial, 0)
    assert 1e-4 <= values["optimizer.learning_rate"] <= 1e-1
    assert values["optimizer.name"] in ("sgd", "adam")
    assert type(values["global_batch_size"]) is int
    assert 16 <= values["global_batch_size"] <= 256
    assert 0.1 <= values["validation_split"] <= 0.5
    assert values["accumulate"] in (1, 2, 3, 4)
    assert values["schedule"] in (("warm_up", "cosine"), ("step",))
    assert type(values["learning_rate_scaling"]) is bool


def test_a_trial_does_not_change_with_other_options_or_trials() -> None:
    alone = parse_space({"optimizer.learning_rate": "log(1e-4,1e-1)"})
    many = parse_space(SPACE).draw(3, 50)
    assert alone.draw(3, 2) == [{"optimizer.learning_rate": own["optimizer.learning_rate"]} for own in many[:2]]
    assert alone.draw(3, 1) != alone.draw(4, 1)


def test_draws_are_spread_evenly_over_the_exponents_and_reach_both_ends() -> None:
    space = parse_space({"learning_rate": "log(1e-4,1e-1)", "accumulate": "int(1,4)"})
    drawn = space.draw(0, 2000)
    exponents = [math.log10(values["learning_rate"]) for values in drawn]
    assert median(exponents) == pytest.approx(-2.5, abs=0.1)
    assert [sum(values["accumulate"] == count for values in drawn) for count in (1, 2, 3, 4)] == pytest.approx(
        [500] * 4, rel=0.2
    )
    assert 0 <= min(share_of(0, trial, "x") for trial in range(2000)) < 0.01


def test_no_configuration_is_drawn_twice_and_a_small_space_is_tried_as_a_whole() -> None:
    space = parse_space({"accumulate": "int(1,4)", "optimizer.name": "sgd,adam,lars"})
    assert space.size() == 12
    for count in (5, 11, 12, 100):
        drawn = [tuple(values.items()) for values in space.draw(7, count)]
        assert len(drawn) == len(set(drawn)) == min(count, 12)
    assert space.draw(7, 5) == space.draw(7, 11)[:5]
    assert space.draw(7, 12) != space.draw(8, 12)


def test_a_space_survives_its_file() -> None:
    space = parse_space({**SPACE, "momentum": [0.123456789, 0.9], "clip_norm": "uniform(0.1,0.123456789)"})
    assert parse_space(space.to_dict()) == space


def test_options_that_the_chosen_optimizer_does_not_have_are_left_out() -> None:
    run = [Given("model", "simplemlp", "model")]
    values = {"optimizer.name": "adam", "optimizer.momentum": 0.5, "optimizer.beta1": 0.8, "learning_rate": 0.1}
    assert list(applicable(values, run)) == ["optimizer.name", "optimizer.beta1", "learning_rate"]
    assert list(applicable({**values, "optimizer.name": "sgd"}, run)) == [
        "optimizer.name",
        "optimizer.momentum",
        "learning_rate",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected at least one option"),
        ({"lerning_rate": "log(1,2)"}, "Did you mean 'learning_rate'"),
        ({"learning_rate": "log(0,1)"}, "begins above 0"),
        ({"learning_rate": "log(1,1)"}, "from low to high"),
        ({"learning_rate": "log(1)"}, "expected two numbers"),
        ({"learning_rate": "fast,slow"}, "expected a number, received 'fast'"),
        ({"learning_rate": "0.1,0.1"}, "given twice"),
        ({"learning_rate": "0.1,,0.2"}, "a value is empty"),
        ({"accumulate": "int(1.5,4)"}, "expected whole numbers"),
        ({"learning_rate": "0.1,0.2", "optimizer.learning_rate": "0.3,0.4"}, "are the same option"),
        ({"optimizer": "sgd,adam", "optimizer.name": "sgd,lars"}, "are the same option"),
        ({"learning_rate": 3}, "expected log"),
    ],
)
def test_wrong_spaces_are_refused_with_what_was_expected(given, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_space(given)


def test_an_option_that_no_component_has_is_found_before_anything_is_trained() -> None:
    """A path may be an option of a plugin, so only the run of a trial tells."""
    with pytest.raises(ConfigError, match=r"trial 1 .* is no valid run: .*no such option"):
        prepare(SearchOptions(), {"training.sede": "int(1,4)"}, [])


def test_assignments_are_split_at_the_first_sign() -> None:
    assert split_assignments(["--learning-rate=log(1,2)", "model-options=depth=2|depth=3"]) == {
        "learning_rate": "log(1,2)",
        "model_options": "depth=2|depth=3",
    }
    for wrong in (["x"], ["=1"], ["x="], ["a=1", "a=2"]):
        with pytest.raises(ConfigError):
            split_assignments(wrong)
