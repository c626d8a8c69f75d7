"""The learning-rate range test: the suggestion for curves whose answer is known, and real networks."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ringlet import RunConfig, Trainer
from ringlet.errors import ConfigError, DivergedError
from ringlet.tuning.range_test import analyse, range_test, smooth

RATES = np.geomspace(1e-6, 10, 100)


def falling(centre: float, noise: float = 0.0) -> np.ndarray:
    """A loss that falls from 2 to 1 around ``centre``, and explodes from a hundred times that on."""
    place = np.log10(RATES / centre)
    curve = 1 + 1 / (1 + np.exp(4 * place)) + np.where(place > 2, (place - 2) * 20, 0.0)
    return curve + noise * np.random.default_rng(0).standard_normal(len(RATES))


@pytest.mark.parametrize("centre", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_suggestion_is_where_the_loss_falls_fastest(centre: float, noise: float) -> None:
    found = analyse(RATES.tolist(), falling(centre, noise).tolist())
    assert found.suggestion == pytest.approx(centre, rel=1.0)
    assert found.suggestion < found.lowest


@pytest.mark.parametrize("losses", [np.full(100, 2.0), np.linspace(1, 9, 100), falling(1e-3)[:5]])
def test_a_loss_that_does_not_fall_suggests_nothing(losses: np.ndarray) -> None:
    assert analyse(RATES[: len(losses)].tolist(), losses.tolist()).suggestion is None


def test_noise_alone_suggests_nothing() -> None:
    noise = 2 + 0.1 * np.random.default_rng(1).standard_normal(100)
    assert analyse(RATES.tolist(), noise.tolist()).suggestion is None


def test_smoothing_keeps_straight_lines_within_and_is_not_late() -> None:
    line = np.linspace(0, 1, 100)
    assert smooth(line)[20:80] == pytest.approx(line[20:80], abs=1e-6)
    step = np.where(np.arange(100) < 50, 0.0, 1.0)
    assert smooth(step)[49] + smooth(step)[50] == pytest.approx(1.0)


def test_the_suggested_rate_trains_better_than_rates_far_from_it() -> None:
    config = RunConfig(model="simplecnn", optimizer="sgd", num_epochs=4, threads=1)
    found = range_test(config)
    assert found.suggestion is not None
    assert len(found.rates) == len(found.losses) <= 100
    assert found.rates[0] == pytest.approx(1e-6)
    assert np.diff(np.log(found.rates)) == pytest.approx(np.log(1e7) / 99)

    def loss(rate: float) -> float:
        try:
            return Trainer(config=config.replace(learning_rate=rate)).fit().epochs[-1]["loss"]
        except DivergedError:
            return float("inf")

    suggested = loss(found.suggestion)
    assert suggested < loss(found.suggestion / 30)
    assert suggested < loss(found.suggestion * 30)


def test_on_two_workers_it_gives_the_same_bits_and_leaves_its_files(ringlet, own_folder: Path) -> None:
    options = ("--model", "simplemlp", "--optimizer", "sgd", "--shards", "2", "--steps", "40", "--launcher", "local")
    one = ringlet("tune", "lr", *options, "--tune-dir", "one", "--json")
    two = ringlet("tune", "lr", *options, "--tune-dir", "two", "-n", "2")
    assert (one.code, two.code) == (0, 0), one.stderr + two.stderr
    files = [json.loads((own_folder / name / "range_test.json").read_text()) for name in ("one", "two")]
    assert files[0] == files[1]
    assert files[0]["suggestion"] == json.loads(one.stdout)["suggestion"]
    assert f"Suggested learning rate: {files[0]['suggestion']:g}" in two.stdout
    best = tomllib.loads((own_folder / "two" / "best.toml").read_text())
    assert best["optimizer"]["learning_rate"] == files[0]["suggestion"]
    assert best["model"]["name"] == "simplemlp"
    with Image.open(own_folder / "two" / "range_test.png") as picture:
        picture.load()
        assert min(picture.size) > 200


def test_a_scaled_rate_is_suggested_as_the_option_that_leads_to_it() -> None:
    """With ``learning_rate_scaling`` the optimizer gets the option times the shards; the option is what is wanted."""
    config = RunConfig(model="simplemlp", optimizer="sgd", shards=4, threads=1)
    plain, scaled = (range_test(config.replace(learning_rate_scaling=own), steps=20) for own in (False, True))
    assert scaled.rates[:15] == pytest.approx(plain.rates[:15])
    assert scaled.losses[0] == plain.losses[0]
    assert scaled.losses[5:8] != plain.losses[5:8]


@pytest.mark.parametrize("options", [{"start": 1.0, "end": 0.1}, {"start": 0.0}, {"end": float("inf")}, {"steps": 3}])
def test_impossible_ranges_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        range_test(RunConfig(), **options)
