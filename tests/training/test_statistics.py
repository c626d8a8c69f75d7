"""Running statistics of batch norm: their momentum follows from the steps of an epoch, and a lag is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringlet import RunConfig, Trainer
from ringlet.models.momentum import fitting_momentum, momentum_of
from ringlet.training.session import Session

SMALL = {"model": "unet", "dataset": "shapes", "image_size": 16, "num_samples": 40, "batch_size": 8}
WIDTH = {"width": 2, "levels": 2}


@pytest.mark.parametrize("num_steps", [1, 2, 5, 50, 500])
def test_after_an_epoch_a_tenth_of_the_first_statistics_is_left_at_most(num_steps: int) -> None:
    momentum = fitting_momentum(num_steps)
    assert momentum**num_steps <= 0.101 or momentum == 0.5


def test_a_short_epoch_has_a_small_momentum_and_says_so() -> None:
    trainer = Trainer(**SMALL, model_options=WIDTH)
    assert momentum_of(trainer.spec) == fitting_momentum(5)
    assert any("momentum 0.631 instead of 0.99, since an epoch has 5 steps" in remark for remark in trainer.remarks)


def test_a_momentum_that_is_given_stays() -> None:
    assert momentum_of(Trainer(**SMALL, model_options={"momentum": 0.99, **WIDTH}).spec) == 0.99


def test_a_run_that_was_begun_with_another_momentum_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**SMALL, "model_options": WIDTH, "run_dir": "out", "num_pictures": 0}
    with monkeypatch.context() as older:
        older.setattr("ringlet.training.components.fitting_momentum", lambda _: 0.99)
        Session.open(RunConfig(**options, num_epochs=1)).run()
    resumed = Session.open(RunConfig(**options, num_epochs=2, resume="auto"))
    assert momentum_of(resumed.spec) == 0.99
    assert resumed.run().num_epochs == 1


def remarks(**network: Any) -> list[str]:
    told: list[str] = []
    note: Callable[[Any], None] = lambda event: told.extend(getattr(event, "messages", ()))  # noqa: E731
    Trainer(**SMALL, model_options={**WIDTH, **network}, callbacks=[note]).fit(3)
    return [message for message in told if "running statistics" in message]


def test_statistics_that_lag_are_told_once() -> None:
    assert len(remarks(momentum=0.99)) == 1


def test_statistics_that_follow_are_not_worth_a_word() -> None:
    assert remarks() == []
