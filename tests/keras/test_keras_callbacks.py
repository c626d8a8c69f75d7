"""Callbacks: learning rates, metrics, checkpoints, stopping."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])


def test_warmup_goes_from_the_rate_of_one_rank_to_that_of_all(checked, backend):
    first, second = checked(backend, "warmup")
    expected = [0.4 + 0.4 * step / 8 for step in range(1, 9)]
    assert first["rates"][:8] == pytest.approx(expected)
    assert first["rates"][8:] == pytest.approx([0.8] * 4)
    assert first["told"] == pytest.approx([0.6, 0.8, 0.8])
    assert first["digest"] == second["digest"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]),
        ("staircase", [1, 1, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 4, 1 / 4]),
        ("smooth", [1, 1 / 1.5, 1 / 2, 1 / 2.5, 1 / 3, 1 / 3.5, 1 / 4, 1 / 4.5]),
        ("given_steps", [1, 1.25, 2, 2.25, 3, 3.25, 4, 4.25]),
    ],
)
def test_schedules_multiply_the_initial_rate(checked, backend, schedule, expected):
    assert checked(backend, "schedules")[0][schedule] == pytest.approx(expected)


def test_schedules_that_cannot_be_are_refused(checked, backend):
    result = checked(backend, "schedules")[0]
    assert "is a schedule of Keras and cannot be set" in result["keras_schedule"]
    assert "expected steps_per_epoch, or staircase=True" in result["unknown_steps"]


def test_momentum_is_scaled_with_the_learning_rate(checked, backend):
    ratios = checked(backend, "momentum_correction")[0]
    assert all(before > 0 for before, _ in ratios.values())
    assert {name: pytest.approx(ratio) for name, (_, ratio) in ratios.items()} == {
        "sgd": 0.25,
        "uncorrected": 1.0,
        "rmsprop": 0.25,
        "adam": 1.0,
    }


def test_metrics_are_averaged_over_samples(checked, backend):
    first, second = checked(backend, "metrics")
    assert first["weighted"] == second["weighted"]
    for name in ("loss", "mae"):
        assert first["weighted"][name] == pytest.approx(first["whole"][name])
        assert first["weighted"][f"val_{name}"] == pytest.approx(first["whole_test"][name])
        assert first["evaluated"][name] == pytest.approx(first["whole"][name])


def test_metrics_are_averaged_over_ranks(checked, backend):
    first, second = checked(backend, "metrics")
    assert first["plain"] == second["plain"]
    assert first["plain"]["val_loss"] != pytest.approx(first["whole_test"]["loss"], rel=0.01)


def test_metrics_that_only_some_ranks_have_are_averaged_over_those(checked, backend):
    first, second = checked(backend, "metrics")
    assert first["of_rank_0"] == {"a": 3.0, "both": 1.5}
    assert second["of_rank_0"] == {"both": 1.5}
    assert first["empty"] == {"a": 0.5}


def test_all_ranks_stop_if_one_wants_to(checked, backend):
    assert checked(backend, "stopping") == [2, 2]


def test_rank_0_alone_writes_the_best_checkpoint(checked, backend):
    first, second = checked(backend, "best_checkpoint")
    assert first["files"] == second["files"] == first["expected"]
    assert first["best"] == pytest.approx(first["loss"])
    assert second["best"] is None
