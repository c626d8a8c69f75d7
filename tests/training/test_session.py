"""A session: its parts, the observers of its training, and that a run and a trainer are the same session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import pytest

from ringlet import RunConfig, Trainer, output_streams
from ringlet.comm.single import SingleCommunicator
from ringlet.optim import SGD
from ringlet.training.components import make_dataset, make_spec
from ringlet.training.events import EpochFinished, Event, OutputLost, StepFinished, TrainingStopped
from ringlet.training.observers import Control, Observers, RankObserver
from ringlet.training.session import Session


@final
class Noting(RankObserver):
    """Notes which hooks are called, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def after_step(self) -> None:
        self.calls.append("step")

    def take_outputs(self, indices: Any, outputs: Any) -> None:
        assert len(indices) == len(outputs)
        if self.calls[-1] != "outputs":
            self.calls.append("outputs")

    def after_validation(self, epoch: int) -> None:
        self.calls.append(f"validation {epoch}")

    def after_epoch(self, *, is_best: bool) -> None:
        self.calls.append(f"epoch, best: {is_best}")

    def finish(self) -> None:
        self.calls.append("finish")

    def abandon(self) -> None:
        self.calls.append("abandon")


EPOCH = ["step", "step", "outputs", "validation {}", "epoch, best: False"]


def test_observers_are_called_on_the_way_through_training(small_config: Callable[..., RunConfig]) -> None:
    session, noting = Session(small_config(steps_per_epoch=2)), Noting()
    stop, finished = session.train(2, Observers([noting]))
    assert stop is None
    assert finished.num_epochs == 2
    assert noting.calls == [call.format(epoch) for epoch in (1, 2) for call in EPOCH] + ["finish"]


def test_observers_hear_of_an_error_before_it_leaves(small_config: Callable[..., RunConfig]) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, StepFinished):
            raise ZeroDivisionError

    session, noting = Session(small_config()), Noting()
    with pytest.raises(ZeroDivisionError):
        session.train(2, Observers([fail, noting]))
    assert noting.calls == ["abandon"]


def test_what_a_callback_returns_ends_training_after_the_epoch(small_config: Callable[..., RunConfig]) -> None:
    seen: list[Event] = []

    def enough(event: Event) -> str | None:
        return "enough" if isinstance(event, StepFinished) else None

    stop, finished = Session(small_config()).train(2, Observers([enough, seen.append]))
    assert stop is not None
    assert (stop.reason, stop.interrupted, finished.num_epochs) == ("enough", False, 1)
    assert [event.reason for event in seen if isinstance(event, TrainingStopped)] == ["enough"]


def test_lost_output_is_told_once_before_the_next_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_streams, "losses", {})
    seen: list[Event] = []
    observers, control = Observers([seen.append], Control()), TrainingStopped(1, 1, "x")
    observers(control)
    output_streams.losses[1] = output_streams.Loss("stdout", "Broken pipe", True)
    observers(control)
    observers(control)
    assert seen == [control, OutputLost("stdout", "Broken pipe"), control, control]


def test_ready_made_parts_take_the_place_of_names(small_config: Callable[..., RunConfig]) -> None:
    config = small_config()
    dataset = make_dataset(config)
    spec, optimizer, comm = make_spec(config, dataset), SGD(learning_rate=0.02), SingleCommunicator()
    session = Session(config.replace(optimizer=optimizer), spec=spec, dataset=dataset, communicator=comm)
    assert (session.spec, session.dataset, session.comm) == (spec, dataset, comm)
    assert session.optimizer == session.given_optimizer == optimizer


def test_a_run_and_a_trainer_are_the_same_session(small_config: Callable[..., RunConfig]) -> None:
    config = small_config(run_dir="out")
    said: list[str] = []
    run, trainer = Session.open(config, say=said.append), Trainer(config=config)
    seen: list[dict[str, float]] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochFinished):
            seen.append(dict(event.figures))

    result = run.run([note])
    assert trainer.fit().epochs == result.epochs == seen
    np.testing.assert_array_equal(trainer.replica.parameters.flat, run.replica.parameters.flat)
    assert said == []
