"""State that is not finite is never saved, and never gone on from; a doubtful update is noticed before it is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet import RunConfig, Trainer
from ringlet.checkpoint import Checkpoint, CheckpointStore
from ringlet.errors import CheckpointError, DivergedError
from ringlet.models.files import load_model_file
from ringlet.strategies.finite import Magnitude, first_not_finite, is_finite, norm_bound, safe_norm
from ringlet.training.events import EpochFinished, Event, StepFinished
from ringlet.training.session import Session


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bound_of_a_norm_is_finite_for_finite_numbers_alone(dtype: str) -> None:
    largest = np.finfo(dtype).max
    with np.errstate(over="ignore", invalid="ignore"):
        assert norm_bound(np.array([3.0, 4.0], dtype)) == pytest.approx(5.0)
        assert norm_bound(np.zeros(0, dtype)) == 0.0
        assert safe_norm(dtype) < norm_bound(np.full(4, largest, dtype)) < 1e300
        for bad in (np.nan, np.inf, -np.inf):
            assert not np.isfinite(norm_bound(np.array([1.0, bad], dtype)))
            assert not is_finite(np.array([1.0, bad], dtype))
        assert is_finite(np.array([largest, -largest], dtype))
    assert first_not_finite({"a": np.ones((2, 2)), "b": np.array([[np.nan]])}) == "b"


@pytest.mark.parametrize(
    ("gradients", "state", "rate", "doubtful"),
    [(1.0, 1.0, 0.1, False), (70_000.0, 1.0, 0.1, True), (1.0, 1e30, 0.1, True), (1.0, 1.0, 1e30, True)],
)
def test_a_step_is_doubtful_if_anything_may_overflow(
    gradients: float, state: float, rate: float, doubtful: bool
) -> None:
    magnitude = Magnitude(gradients, state)
    assert magnitude.is_doubtful(65504.0, safe_norm(np.float32), rate) == doubtful


def poisoned(session: Session, step: int, poison: Callable[[Any], None]) -> Callable[[Event], None]:
    """A callback that damages the run's memory after a step."""

    def callback(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == step:
            poison(session)

    return callback


def damage_parameters(trainer: Any) -> None:
    trainer.replica.parameters.views["dense1.bias"][0] = -np.inf  # of a ReLU's input: no loss tells


def damage_optimizer(trainer: Any) -> None:
    trainer.strategy._state["second"][3] = np.inf  # a parameter that does not move any more: no loss tells


@pytest.mark.parametrize(
    ("damage", "words"),
    [(damage_parameters, "'dense1.bias' is not finite"), (damage_optimizer, "state 'second' is not finite")],
)
def test_a_checkpoint_that_is_not_finite_is_refused_and_older_ones_are_kept(
    small_config: Callable[..., RunConfig], damage: Callable[[Any], None], words: str
) -> None:
    options = {"model": "simplemlp", "run_dir": "out", "checkpoint_every": "1 steps", "keep": 2, "evaluate": False}
    session = Session.open(small_config(**options))
    with pytest.raises(DivergedError, match=words) as caught:
        session.run([poisoned(session, 3, damage)])
    assert "(update 3)" in str(caught.value)
    assert "No checkpoint is written, older ones are kept" in str(caught.value)
    store = CheckpointStore("out/checkpoints")
    assert store.steps() == [1, 2]
    newest = store.newest()
    assert newest is not None
    arrays = (*newest.tensors.values(), *newest.optimizer.values())
    assert all(np.isfinite(array).all() for array in arrays)
    assert not Path("out/model.safetensors").exists()


def test_the_model_of_an_epoch_is_not_replaced_by_one_that_is_not_finite(
    small_config: Callable[..., RunConfig],
) -> None:
    session = Session.open(small_config(model="simplemlp", run_dir="out", checkpoint_every="never", evaluate=False))
    with pytest.raises(DivergedError, match=r"'dense1.bias' is not finite(.|\n)*holds the model after epoch 1"):
        session.run([poisoned(session, 8, damage_parameters)])
    assert all(np.isfinite(tensor).all() for tensor in load_model_file("out/model.safetensors").tensors.values())


def test_a_model_file_that_is_not_finite_is_refused(small_trainer: Callable[..., Trainer]) -> None:
    trainer = small_trainer(model="simplemlp")
    trainer.save("model.safetensors")
    before = Path("model.safetensors").read_bytes()
    damage_parameters(trainer)
    with pytest.raises(DivergedError, match=r"'dense1.bias' is not finite: the model is not saved"):
        trainer.save("model.safetensors")
    assert Path("model.safetensors").read_bytes() == before


def test_no_run_goes_on_from_a_checkpoint_that_is_not_finite(small_config: Callable[..., RunConfig]) -> None:
    options = {"model": "simplemlp", "run_dir": "out", "checkpoint_every": "1 epochs", "evaluate": False}
    Session.open(small_config(**options)).run()
    store = CheckpointStore("out/checkpoints")
    good = store.newest()
    assert good is not None
    state = {name: array.copy() for name, array in good.optimizer.items()} | {
        "second": np.full_like(good.optimizer["second"], np.inf)
    }
    fields = {name: getattr(good, name) for name in ("spec", "tensors", "metadata", "training", "config", "versions")}
    store.write(Checkpoint(step=good.step + 1, optimizer=state, **fields))
    with pytest.raises(CheckpointError, match=r"step 9 holds 'second', which is not finite.*earlier one"):
        Session.open(small_config(**options, resume="auto")).run()


@pytest.mark.parametrize("strategy", ["sync", "average:2", "async"])
def test_a_learning_rate_that_makes_parameters_overflow_is_noticed_in_the_same_step(
    small_config: Callable[..., RunConfig], strategy: str
) -> None:
    options = {"optimizer": "sgd", "learning_rate": 1e40, "strategy": strategy}
    with pytest.raises(DivergedError, match=r"\(update 1\).*new values would not be finite.*was not applied"):
        Session.open(small_config(model="simplemlp", run_dir="out", evaluate=False, **options)).run()
    assert CheckpointStore("out/checkpoints").steps() == []


def test_a_trainer_that_has_refused_a_step_can_go_on(small_trainer: Callable[..., Trainer]) -> None:
    """A step that ends in an error changes nothing, not even the replica's running statistics."""
    trainer = small_trainer(model="vgg1dobn", dataset="digits", num_epochs=1)
    original = trainer.replica.loss_and_gradients

    def spoil(*arguments: Any, **keywords: Any) -> Any:
        output = original(*arguments, **keywords)
        trainer.replica.state.flat[0] = np.inf
        return output

    before = trainer.replica.state.flat.copy()
    trainer.replica.loss_and_gradients = spoil  # type: ignore[method-assign]
    with pytest.raises(DivergedError, match=r"the running statistic 'norm1.running_mean' is not finite"):
        trainer.fit()
    np.testing.assert_array_equal(trainer.replica.state.flat, before)
    trainer.replica.loss_and_gradients = original  # type: ignore[method-assign]
    events: list[Event] = []
    trainer.callbacks = (events.append,)
    trainer.fit()
    assert any(isinstance(event, EpochFinished) for event in events)


def test_an_epoch_of_which_every_step_was_skipped_is_a_divergence(small_config: Callable[..., RunConfig]) -> None:
    session = Session.open(small_config(model="simplemlp", on_nan="skip", run_dir="out"))
    original = session.replica.loss_and_gradients

    def spoil(*arguments: Any, **keywords: Any) -> Any:
        output = original(*arguments, **keywords)
        session.replica.gradients.flat[0] = np.nan
        return output

    session.replica.loss_and_gradients = spoil  # type: ignore[method-assign]
    with pytest.raises(DivergedError, match="every step of it was skipped"):
        session.run()
