"""The training loop: epochs of steps, validation after each, decisions of the schedule, events for all observers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data import Batch, BatchLoader
from ringlet.engines.contract import Replica
from ringlet.engines.threads import AdaptiveThreads
from ringlet.errors import DivergedError
from ringlet.evaluation.tally import Tally
from ringlet.evaluation.views import View
from ringlet.metrics import Measure
from ringlet.optim import Decision, Schedule
from ringlet.strategies.contract import Strategy
from ringlet.timeline import PHASES, PhaseTotals
from ringlet.training.best_weights import earlier_was_better
from ringlet.training.divergence import ADVICE, check_finite, explain_divergence
from ringlet.training.events import (
    EpochFinished,
    EpochResumed,
    EpochStarted,
    PhasesMeasured,
    StalenessMeasured,
    StepFinished,
    StepSkipped,
    TrainingFinished,
    TrainingStopped,
    ValidationStarted,
)
from ringlet.training.metric_sums import Meter, ShardSums
from ringlet.training.observers import Control, Observers, Stop, agree_on_stopping, interruption
from ringlet.training.progress import Progress
from ringlet.training.reporting import evaluate_views
from ringlet.training.statistics import StatisticsWatch
from ringlet.training.step import StepResult, training_step

MAX_SKIPPED = 100
"""Steps without an update that a run may have."""


def _ignore(*_: object) -> None:
    """No one watches."""


@dataclass(frozen=True)
class Loop:
    """The parts of a training run; :meth:`run` may be called again to train on."""

    replica: Replica
    strategy: Strategy
    schedule: Schedule
    train: BatchLoader
    validation: BatchLoader | None
    metrics: Sequence[Measure]
    seed: int
    progress: Progress
    timeline: PhaseTotals = field(default_factory=PhaseTotals)
    skip_bad: bool = False
    """Whether a step that is not finite is skipped rather than the end of training."""
    report: Callable[[int | str], None] = _ignore
    """Told at every step, and between them what is being done: for a watch over the progress of ranks."""
    check: Callable[[int], None] = _ignore
    """Called with a step's number when all ranks hold the same, on all of them: to compare replicas."""
    statistics: StatisticsWatch | None = None
    begin: Callable[[int], None] = _ignore
    """Called with an epoch's number, from 1, before its first step, on all ranks."""
    threads: AdaptiveThreads = field(default_factory=AdaptiveThreads)

    def run(self, last_epoch: int, observers: Observers) -> tuple[Stop | None, TrainingFinished]:
        """Train until ``last_epoch`` epochs are done in all, or the control of any rank says stop; gives why, then."""
        start, before = perf_counter(), replace(self.progress)
        stop = agree_on_stopping(self.strategy.comm, observers.control)
        while stop is None and self.progress.num_epochs < last_epoch:
            stop = self._epoch(last_epoch, observers)
        self.report("saving")
        for own in observers.of_ranks:
            own.finish()
        progress = self.progress
        if stop is not None:
            observers(TrainingStopped(progress.running_epoch, progress.num_steps, stop.reason))
        seconds, trained = perf_counter() - start, progress.num_samples - before.num_samples
        counts = progress.num_epochs - before.num_epochs, progress.num_steps - before.num_steps
        names = [measure.name for measure in self.metrics]
        better = "" if self.schedule.keeps_best else earlier_was_better(progress.epochs, names)
        messages = (better,) if better else ()
        finished = TrainingFinished(*counts, trained, seconds, trained / max(seconds, 1e-9), messages)
        observers(finished)
        return stop, finished

    def _epoch(self, last: int, observers: Observers) -> Stop | None:
        """One epoch, or what is left of it; an interruption leaves it unfinished."""
        epoch, start, control = self.progress.num_epochs, perf_counter(), observers.control
        about = epoch + 1, last, self.train.num_steps, self.train.num_samples
        done = self.progress.step_in_epoch
        self.begin(epoch + 1)
        observers(EpochResumed(*about, done, self.train.num_read(done)) if done else EpochStarted(*about))
        self.timeline.take()
        meter = Meter(self.metrics)
        if self.progress.totals:
            meter.add_totals(self.progress.totals)
        rate, interrupted = self._steps(epoch, meter, observers)
        if interrupted:
            return interruption(control.wish)
        trained = perf_counter()
        staleness = self.strategy.staleness()
        if staleness is not None:
            observers(StalenessMeasured(epoch + 1, staleness.mean, staleness.max, staleness.histogram))
        metrics = self._means_of_epoch(meter)
        if self.validation is not None:
            observers(ValidationStarted(epoch + 1, self.validation.num_samples))
            self.timeline.mark("validation")
            validated = self._validate(self.validation, observers)
            if validated is None:
                return interruption(control.wish)
            metrics |= validated.means("val_")
            for own in observers.of_ranks:
                own.after_validation(epoch + 1)
        decision = self._decide(epoch, metrics)
        self._finish_epoch(metrics)
        observers(PhasesMeasured(epoch + 1, PHASES, self._phases_of_all_ranks()))
        times = start, trained, perf_counter()
        observers(self._finished(metrics, decision, rate, times, last, self.train.num_read(done)))
        if decision.stop_reason is not None:
            control.stop(decision.stop_reason)
        stop = agree_on_stopping(self.strategy.comm, control)
        self.progress.stopped = stop.reason if stop is not None and not stop.interrupted else None
        for own in observers.of_ranks:
            own.after_epoch(is_best=decision.save)
        return stop

    def _decide(self, epoch: int, metrics: dict[str, float]) -> Decision:
        """What the schedule makes of an epoch; with a remark if its validation is not worth much."""
        decision = self.schedule.on_epoch_end(epoch, metrics)
        remark = "" if self.statistics is None or self.validation is None else self.statistics.remark()
        return replace(decision, messages=(*decision.messages, remark)) if remark else decision

    def _validate(self, loader: BatchLoader, observers: Observers) -> Meter | None:
        return evaluate(
            self.replica,
            loader,
            self.metrics,
            self.strategy.comm,
            self.strategy.num_shards,
            observers.control,
            report=self.report,
            take=observers.take_outputs,
        )

    def _finish_epoch(self, metrics: dict[str, float]) -> None:
        progress = self.progress
        progress.num_epochs += 1
        progress.step_in_epoch = 0
        progress.totals = []
        progress.epochs.append({name: float(value) for name, value in metrics.items()})

    def _steps(self, epoch: int, meter: Meter, observers: Observers) -> tuple[float, bool]:
        """The steps of one epoch; gives the last learning rate, and whether a rank was interrupted.

        When this returns, or raises DivergedError, all ranks hold the same parameters; when it returns, finite ones.
        """
        rate, interrupted, failure = self._steps_apart(epoch, meter, observers)
        if not self.strategy.lockstep:
            self.strategy.settle()
            self.check(self.progress.num_steps)
            failure = next(filter(None, self.strategy.comm.allgather_bytes(failure.encode())), b"").decode()
        if failure:
            raise DivergedError(failure)
        replica = self.replica
        check_finite(self.strategy.comm, self.progress, replica.parameters, replica.state)
        return rate, interrupted

    def _steps_apart(self, epoch: int, meter: Meter, observers: Observers) -> tuple[float, bool, str]:
        """The steps of one epoch on this rank; also why it cannot continue, which others need not know of yet."""
        progress, failure = self.progress, ""
        rate = self._rate(epoch, max(progress.step_in_epoch - 1, 0), max(progress.num_steps - 1, 0))
        with closing(self.train.epoch(epoch, progress.step_in_epoch)) as batches:
            self.timeline.mark("data")
            for batch in batches:
                rate = self._rate(epoch, batch.step_in_epoch, progress.num_steps)
                step = progress.num_steps + 1
                if self.statistics is not None and batch.step_in_epoch + 1 == self.train.num_steps:
                    self.statistics.before_step()
                with self.threads:
                    result = self._step(batch, step, rate, observers.control)
                progress.num_steps, progress.step_in_epoch = step, batch.step_in_epoch + 1
                if result.problem is None:
                    progress.num_samples += batch.num_global
                    meter.add_totals(result.metrics.totals)
                    progress.totals = meter.totals
                    means = result.metrics.means(), meter.means()
                    observers(StepFinished(epoch + 1, step, progress.step_in_epoch, batch.num_global, rate, *means))
                elif self.skip_bad:
                    failure = failure or self._skipped(result.problem, epoch, observers)
                else:
                    failure = failure or explain_divergence(batch, step, result.problem)
                if (failure and self.strategy.lockstep) or self._is_over(result, step, observers, failure):
                    return rate, True, failure
                self.timeline.mark("data")
        return rate, False, failure

    def _is_over(self, result: StepResult, step: int, observers: Observers, failure: str) -> bool:
        """End a step; whether all ranks stop after it."""
        strategy, wants_to_stop = self.strategy, observers.control.interrupted or bool(failure)
        stop = strategy.end_step(step, wants_to_stop=wants_to_stop)
        if strategy.agreed:
            self.check(step)
        for own in observers.of_ranks:
            own.after_step()
        alone = strategy.comm.size == 1 and wants_to_stop
        return stop or alone or (strategy.lockstep and result.interrupted)

    def _means_of_epoch(self, meter: Meter) -> dict[str, float]:
        whole = self._of_all_ranks(meter)
        if whole.num_samples == 0:
            raise DivergedError(
                f"training diverged in epoch {self.progress.running_epoch}: every step of it was skipped, because "
                f"something was not finite. {ADVICE}"
            )
        return whole.means()

    def _of_all_ranks(self, meter: Meter) -> Meter:
        """The metrics of all ranks, where each has counted its own."""
        if self.strategy.lockstep:
            return meter
        whole = Meter(self.metrics)
        whole.add_totals(self.strategy.comm.allreduce(np.array(meter.totals)).tolist())
        return whole

    def _phases_of_all_ranks(self) -> tuple[tuple[float, ...], ...]:
        """How long each rank spent on each phase since the epoch began."""
        rows = self.strategy.comm.allgather(np.array([self.timeline.take()]))
        return tuple(tuple(row) for row in rows.tolist())

    def _rate(self, epoch: int, step_in_epoch: int, num_steps: int) -> float:
        """The learning rate of the step after ``num_steps`` others."""
        return self.schedule.learning_rate(epoch + step_in_epoch / self.train.num_steps, num_steps)

    def _skipped(self, problem: str, epoch: int, observers: Observers) -> str:
        """Take note of a step without an update; too many of them in all are a divergence after all, told in words."""
        self.progress.num_skipped += 1
        observers(StepSkipped(epoch + 1, self.progress.num_steps, problem))
        if self.progress.num_skipped < MAX_SKIPPED:
            return ""
        return (
            f"training diverged in epoch {epoch + 1} (update {self.progress.num_steps}): {problem}. "
            f"{MAX_SKIPPED} steps were skipped. {ADVICE}"
        )

    def _step(self, batch: Batch, step: int, rate: float, control: Control) -> StepResult:
        result = training_step(
            self.replica,
            self.strategy,
            batch,
            step=step,
            learning_rate=rate,
            seed=self.seed,
            metrics=self.metrics,
            is_interrupted=lambda: control.interrupted,
            skip_bad=self.skip_bad,
            timeline=self.timeline,
        )
        self.timeline.mark("other")
        self.report(step)
        return result

    def _finished(
        self,
        metrics: dict[str, float],
        decision: Decision,
        rate: float,
        times: tuple[float, float, float],
        last: int,
        num_before: int,
    ) -> EpochFinished:
        """The event; ``num_before`` samples of the epoch were trained before the run went on within it."""
        start, trained, end = times
        num_samples = self.train.num_samples
        return EpochFinished(
            epoch=self.progress.num_epochs,
            num_epochs=last,
            step=self.progress.num_steps,
            figures=metrics,
            learning_rate=rate,
            num_samples=num_samples,
            seconds=trained - start,
            validation_seconds=end - trained,
            samples_per_second=(num_samples - num_before) / max(trained - start, 1e-9),
            is_best=decision.save,
            messages=decision.messages,
        )


class Batches(Protocol):
    """What gives batches of an evaluation: a loader, or units of the data."""

    def epoch(self, epoch: int, /) -> Generator[Batch, None, None]:
        """All batches of this rank."""


def evaluate(
    replica: Replica,
    loader: Batches,
    metrics: Sequence[Measure],
    comm: Communicator,
    num_shards: int = 1,
    control: Control | None = None,
    *,
    report: Callable[[int | str], None] = _ignore,
    take: Callable[[NDArray[np.int64], NDArray[Any]], None] = _ignore,
    tally: Tally | None = None,
    views: Sequence[View] = (),
) -> Meter | None:
    """Loss and metrics over all samples of all ranks' loaders, in inference mode; every rank must call.

    An interruption of any rank ends it early on that rank and leaves all without a result: there is one look after
    each batch, and what it saw both ends the pass here and tells the others. ``take`` is given the indices and outputs
    of this rank's samples, ``tally`` their targets too. With ``views`` outputs are means over them.
    """
    sums = ShardSums(num_shards, metrics)
    control = control or Control()
    with closing(loader.epoch(0)) as batches:
        for batch in batches:
            for shard, start, stop in batch.pieces:
                targets = batch.targets[start:stop]
                with np.errstate(over="ignore", invalid="ignore"):
                    weights = None if batch.weights is None else batch.weights[start:stop]
                    if views:
                        output = evaluate_views(replica, batch.inputs[start:stop], targets, views, weights)
                    else:
                        output = replica.evaluate(batch.inputs[start:stop], targets, weights)
                    sums.put(shard, output, targets)
                    if tally is not None:
                        tally.take(batch.indices[start:stop], output.outputs, targets)
                take(batch.indices[start:stop], output.outputs)
            report("validation")
            interrupted = control.interrupted
            sums.flag(0, interrupted=interrupted)
            if interrupted:
                break
    comm.allreduce(sums.rows, out=sums.rows)
    return None if sums.interrupted else sums.meter()
