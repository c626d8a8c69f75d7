"""Best weights: a run ends with those that early_stopping or model_checkpoint choose; it resumes with the last ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet import RunConfig, Trainer
from ringlet.errors import UsageError
from ringlet.training.best_weights import earlier_was_better
from ringlet.training.loaded_model import load_model
from ringlet.training.session import Session

WORSE = {"optimizer": "sgd", "learning_rate": 0.1, "validation_split": 0.2, "metrics": ("accuracy",)}
"""So that the loss falls at first."""
RULES = {
    "early_stopping": {"lr_schedulers": ("early_stopping",), "early_stopping_metric": "val_loss"},
    "model_checkpoint": {"lr_schedulers": ("model_checkpoint",), "model_checkpoint_metric": "val_loss"},
}


class Spoiler:
    """Adds noise to the parameters before later epochs, so that these are not the best."""

    def __init__(self, after: int) -> None:
        self.after, self.session = after, None

    def __call__(self, event: Any) -> None:
        if type(event).__name__ == "EpochStarted" and event.epoch > self.after:
            flat = self.session.replica.parameters.flat
            flat += np.random.default_rng(event.epoch).normal(size=flat.size).astype(flat.dtype)


def spoiled(make: Callable[..., Trainer], **options: Any) -> Trainer:
    spoiler = Spoiler(after=2)
    trainer = make(num_epochs=4, callbacks=[spoiler], **{**WORSE, **options})
    spoiler.session = trainer.session
    return trainer


@pytest.mark.parametrize("rule", RULES)
def test_a_trainer_uses_the_best_weights_and_can_have_the_last(
    rule: str, small_trainer: Callable[..., Trainer]
) -> None:
    trainer = spoiled(small_trainer, **RULES[rule])
    history = trainer.fit()
    best = history.best
    assert best is not None
    assert (best.epoch, best.step, best.metric) == (2, 8, "val_loss")
    assert best.value == min(history["val_loss"]) == trainer.evaluate("validation")["loss"]
    trainer.save("best.safetensors")
    assert load_model("best.safetensors").best == best
    trainer.restore("last")
    assert trainer.evaluate("validation")["loss"] > best.value
    trainer.restore("best")
    assert trainer.evaluate("validation")["loss"] == best.value


def test_training_continues_from_the_last_weights(small_trainer: Callable[..., Trainer]) -> None:
    options = {**WORSE, **RULES["model_checkpoint"], "learning_rate": 3.0}
    whole, parts = small_trainer(**options, num_epochs=4), small_trainer(**options, num_epochs=4)
    whole.fit(4)
    parts.fit(2)
    parts.fit(2)
    for trainer in (whole, parts):
        trainer.restore("last")
    np.testing.assert_array_equal(whole.replica.parameters.flat, parts.replica.parameters.flat)


def test_without_such_a_rule_there_are_no_best_weights(small_trainer: Callable[..., Trainer]) -> None:
    trainer = small_trainer()
    assert trainer.fit(1).best is None
    with pytest.raises(UsageError, match="give early_stopping or model_checkpoint as schedule"):
        trainer.restore("best")


@pytest.mark.parametrize("rule", RULES)
def test_a_run_ends_with_its_best_model_and_keeps_the_last_beside_it(
    rule: str, small_config: Callable[..., RunConfig]
) -> None:
    session = Session.open(small_config(run_dir="out", num_epochs=4, **WORSE, **RULES[rule]))
    spoiler = Spoiler(after=2)
    spoiler.session = session
    result = session.run([spoiler])
    assert result.best == {"epoch": 2, "step": 8, "metric": "val_loss", "value": result.epochs[1]["val_loss"]}
    model = load_model("out", batch_size=32, kernels="reference")
    assert model.best is not None
    assert model.best.epoch == 2
    assert model.evaluate() == pytest.approx(result.test)
    assert load_model("out/last.safetensors").best is None
    events = [json.loads(line) for line in Path("out/events.ndjson").read_text().splitlines()]
    assert [event["epoch"] for event in events if event["event"] == "best_restored"] == [2]


@pytest.mark.parametrize("rule", RULES)
def test_a_run_that_resumes_still_has_the_best_weights_from_before(
    rule: str, small_config: Callable[..., RunConfig]
) -> None:
    options = {**WORSE, **RULES[rule], "run_dir": "out", "checkpoint_every": "1 epoch", "keep": 1}
    session = Session.open(small_config(num_epochs=4, **options))
    spoiler = Spoiler(after=2)
    spoiler.session = session
    first = session.run([spoiler])
    resumed = Session.open(small_config(num_epochs=5, **options | {"resume": "auto"}))
    second = resumed.run()
    assert second.num_epochs == 1
    assert second.best == first.best
    assert second.test == first.test


def test_an_earlier_epoch_that_was_clearly_better_is_named() -> None:
    rows = [{"val_accuracy": value} for value in (0.5, 0.95, 0.9)]
    assert earlier_was_better(rows, ["accuracy"]).startswith("epoch 2 was better (val_accuracy 0.95, after the last")
    assert earlier_was_better(rows[:2], ["accuracy"]) == ""
    assert earlier_was_better([{"val_loss": 1.0}, {"val_loss": 1.05}], []) == ""
    assert earlier_was_better([{"val_loss": 1.0}, {"val_loss": 2.0}], []).startswith("epoch 1 was better (val_loss 1")
    assert earlier_was_better([{"loss": 1.0}, {"loss": 2.0}], []) == ""


def test_a_step_that_ends_an_epoch_is_saved_with_its_validation(small_config: Callable[..., RunConfig]) -> None:
    Session.open(small_config(run_dir="out", num_epochs=2, checkpoint_every="4 steps", keep=0)).run()
    resumed = Session.open(small_config(run_dir="out", num_epochs=2, resume="epoch:1", checkpoint_every="4 steps"))
    assert (resumed.progress.num_epochs, resumed.progress.step_in_epoch) == (1, 0)
