"""The training loop: epochs of steps, validation after each, decisions of the schedule, events for everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from ringlet.data import BatchLoader
from ringlet.engines.contract import Replica
from ringlet.optim import Decision, Schedule
from ringlet.training.events import (
    EpochFinished,
    EpochStarted,
    Event,
    StepFinished,
    TrainingFinished,
    TrainingStopped,
    ValidationStarted,
)
from ringlet.training.history import History
from ringlet.training.interrupts import Control
from ringlet.training.meter import Meter
from ringlet.training.step import Updater, training_step

Emit = Callable[[Event], None]


@dataclass
class Progress:
    """How far a run has come: all that changes besides the replica, the optimizer's state and the schedule's."""

    num_epochs: int = 0
    num_steps: int = 0
    num_samples: int = 0


@dataclass(frozen=True)
class Loop:
    """The parts of a training run; :meth:`run` may be called again to go on."""

    replica: Replica
    updater: Updater
    schedule: Schedule
    train: BatchLoader
    validation: BatchLoader | None
    metrics: Sequence[str]
    seed: int
    progress: Progress

    def run(self, num_epochs: int, emit: Emit, control: Control) -> History:
        """Train ``num_epochs`` more epochs, or until ``control`` says stop."""
        history, start = History(), perf_counter()
        steps, samples = self.progress.num_steps, self.progress.num_samples
        last = self.progress.num_epochs + num_epochs
        while self.progress.num_epochs < last and control.reason is None:
            figures = self._epoch(last, emit, control)
            if figures is not None:
                history.append(figures)
        if control.reason is not None:
            history.stopped = control.reason
            emit(TrainingStopped(self.progress.num_epochs, self.progress.num_steps, control.reason))
        seconds = perf_counter() - start
        trained = self.progress.num_samples - samples
        num_steps = self.progress.num_steps - steps
        emit(TrainingFinished(len(history), num_steps, trained, seconds, trained / max(seconds, 1e-9)))
        return history

    def _epoch(self, last: int, emit: Emit, control: Control) -> dict[str, float] | None:
        """One epoch; None if it was interrupted."""
        epoch, start = self.progress.num_epochs, perf_counter()
        emit(EpochStarted(epoch + 1, last, self.train.num_steps, self.train.num_samples))
        meter = Meter(self.metrics)
        rate = self._steps(epoch, meter, emit, control)
        if control.interrupted:
            return None
        trained = perf_counter()
        figures = meter.means()
        if self.validation is not None:
            emit(ValidationStarted(epoch + 1, self.validation.num_samples))
            validated = evaluate(self.replica, self.validation, self.metrics, control)
            if control.interrupted:
                return None
            figures |= validated.means("val_")
        decision = self.schedule.on_epoch_end(epoch, figures)
        self.progress.num_epochs += 1
        emit(self._finished(figures, decision, rate, (start, trained, perf_counter()), last))
        if decision.stop_reason is not None:
            control.stop(decision.stop_reason)
        return figures

    def _steps(self, epoch: int, meter: Meter, emit: Emit, control: Control) -> float:
        """The steps of one epoch; gives the last learning rate."""
        rate = self.schedule.base_learning_rate
        with closing(self.train.epoch(epoch)) as batches:
            for batch in batches:
                done = epoch + batch.step_in_epoch / self.train.num_steps
                rate = self.schedule.learning_rate(done, self.progress.num_steps)
                step = self.progress.num_steps + 1
                output = training_step(self.replica, self.updater, batch, step=step, learning_rate=rate, seed=self.seed)
                self.progress.num_steps = step
                self.progress.num_samples += output.count
                own = Meter(self.metrics)
                own.add(output, batch.targets)
                meter.merge(own)
                position = batch.step_in_epoch + 1
                emit(StepFinished(epoch + 1, step, position, output.count, rate, own.means(), meter.means()))
                if control.interrupted:
                    break
        return rate

    def _finished(
        self, figures: dict[str, float], decision: Decision, rate: float, times: tuple[float, float, float], last: int
    ) -> EpochFinished:
        start, trained, end = times
        num_samples = self.train.num_samples
        return EpochFinished(
            epoch=self.progress.num_epochs,
            num_epochs=last,
            step=self.progress.num_steps,
            figures=figures,
            learning_rate=rate,
            num_samples=num_samples,
            seconds=trained - start,
            validation_seconds=end - trained,
            samples_per_second=num_samples / max(trained - start, 1e-9),
            is_best=decision.save,
            messages=decision.messages,
        )


def evaluate(replica: Replica, loader: BatchLoader, metrics: Sequence[str], control: Control | None = None) -> Meter:
    """Loss and metrics over all samples of ``loader`` in inference mode; an interruption ends it early."""
    meter = Meter(metrics)
    with closing(loader.epoch(0)) as batches:
        for batch in batches:
            with np.errstate(over="ignore", invalid="ignore"):
                meter.add(replica.evaluate(batch.inputs, batch.targets), batch.targets)
            if control is not None and control.interrupted:
                break
    return meter
