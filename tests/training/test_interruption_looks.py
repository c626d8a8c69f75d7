"""A signal may come between any two looks at the control: whatever it hits, nothing half done counts as whole."""

from __future__ import annotations

import pytest

from ringlet.comm.single import SingleCommunicator
from ringlet.training.events import EpochFinished
from ringlet.training.loop import evaluate
from ringlet.training.observers import Control, Wish, agree_on_stopping

REASON = "SIGTERM received"


class Flipping:
    """A control that a signal reaches right after somebody has looked at it for the ``after``-th time."""

    def __init__(self, after: int) -> None:
        self.left = after

    def _look(self) -> bool:
        self.left -= 1
        return self.left < 0

    @property
    def wish(self) -> Wish:
        return Wish(REASON, True) if self._look() else Wish()

    @property
    def interrupted(self) -> bool:
        return self._look()

    @property
    def reason(self) -> str | None:
        return REASON if self._look() else None

    def stop(self, reason: str) -> None:
        raise AssertionError(f"no one wants to stop after an epoch: {reason}")


def test_a_validation_is_whole_or_does_not_count(small_trainer):
    trainer = small_trainer()
    loader = trainer.session.loader(trainer.session.source("validation"))
    whole = evaluate(trainer.replica, loader, trainer.session.measures, trainer.comm)
    assert loader.num_steps > 2
    outcomes = []
    for after in range(2 * loader.num_steps + 2):
        meter = evaluate(trainer.replica, loader, trainer.session.measures, trainer.comm, control=Flipping(after))
        assert meter is None or meter.totals == whole.totals, f"a part of the data was counted as all: look {after}"
        outcomes.append(meter is None)
    assert outcomes[0]
    assert not outcomes[-1]


@pytest.mark.parametrize("strategy", ["sync", "average:2", "async"])
def test_an_epoch_is_whole_or_does_not_count(small_trainer, strategy):
    """The signal comes after every look of a run in turn; finished epochs are those of an undisturbed run."""
    options = {"strategy": strategy, "model": "simplemlp", "num_epochs": 1, "seed": 3}
    undisturbed = small_trainer(**options)
    expected = undisturbed.fit().epochs
    for after in range(200):
        told = []
        trainer = small_trainer(**options, callbacks=[told.append])
        history = trainer.fit(control=Flipping(after))
        finished = [event.figures for event in told if isinstance(event, EpochFinished)]
        assert finished == expected[: len(finished)], f"look {after}"
        assert history.interrupted == (history.stopped is not None), f"look {after}: {history.stopped}"
        assert history.stopped in (None, REASON)
        if history.stopped is None:
            break
    assert after > 4
    assert history.epochs == expected


@pytest.mark.parametrize("after", range(4))
def test_an_interruption_is_never_taken_for_an_early_end(after):
    stop = agree_on_stopping(SingleCommunicator(), Flipping(after))
    assert stop is None or (stop.interrupted and stop.reason == REASON)


def test_an_interruption_wins_over_a_stop_whatever_comes_first():
    for order in (("stop", "interrupt"), ("interrupt", "stop")):
        control = Control()
        for name in order:
            getattr(control, name)(name)
        assert control.wish == Wish("interrupt", True)
