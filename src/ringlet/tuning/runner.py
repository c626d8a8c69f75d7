"""Trains what a search asks for: one ``ringlet train`` for each job, several side by side.

A job that ends by itself leaves a record, good or bad; one that was interrupted leaves none, and resumes from its
checkpoint when the search does. However this process ends, what it has started ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringlet.errors import EXIT_DIVERGED, EXIT_OK, DataError
from ringlet.launch.job import caught_signals
from ringlet.launch.processes import start_guarded
from ringlet.study.measurement import Measurement, read_measurement
from ringlet.study.runner import LEAVE_SECONDS, failure_reason, run_environment
from ringlet.training.run_directory import EVENTS
from ringlet.tuning.directory import Record, Status, TuneDirectory
from ringlet.tuning.methods.base import Job
from ringlet.tuning.options import Search
from ringlet.tuning.summary import best_record

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class TrialProgress:
    """A job that has ended, for those who show it."""

    record: Record
    best: Record | None
    """The best so far."""
    epochs_done: int
    epochs_total: int
    seconds_left: float


Tell = Callable[[TrialProgress], None]
Records = Mapping[tuple[int, int], Record]


def run_search(directory: TuneDirectory, tell: Tell) -> bool:
    """Train what is missing; False if a signal asked to stop before all was done."""
    search, method, start = directory.search, directory.search.options.method, time.monotonic()
    with directory.locked(), caught_signals() as caught:
        records = directory.records()
        before = _epochs_done(records)
        while jobs := method.next_jobs(search.question, directory.merits(records)):
            if caught:
                return False
            waiting, stage = {job.key: job for job in jobs}, jobs[0].epochs
            _drop_networks(directory, records, waiting, stage)
            for job, record in _side_by_side(directory, jobs, caught):
                directory.write_record(job, record)
                records[job.key] = record
                del waiting[job.key]
                _drop_networks(directory, records, waiting, stage)
                tell(_progress(search, record, records, before, time.monotonic() - start))
    return True


@dataclass
class _Running:
    """A job under way."""

    job: Job
    process: subprocess.Popen[bytes]
    asked_to_leave: float | None = field(default=None)


def _side_by_side(directory: TuneDirectory, jobs: Sequence[Job], caught: list[int]) -> Iterator[tuple[Job, Record]]:
    """Train jobs, so many at a time, and give each with its record when it has ended; interrupted ones have none."""
    waiting, running = list(jobs), list[_Running]()
    try:
        while running or (waiting and not caught):
            while waiting and not caught and len(running) < directory.search.parallel:
                job = waiting.pop(0)
                running.append(_Running(job, _start(directory, job)))
            ended = [own for own in running if own.process.poll() is not None]
            running = [own for own in running if own not in ended]
            for own in ended:
                code = own.process.returncode
                if code == EXIT_OK or not caught:
                    yield own.job, _record(directory, own.job, code)
            for own in running if caught else ():
                _ask_to_leave(own, insists=len(caught) > 1)
            if not ended:
                time.sleep(_POLL_SECONDS)
    finally:
        for own in running:
            own.process.kill()
            own.process.wait()


def _start(directory: TuneDirectory, job: Job) -> subprocess.Popen[bytes]:
    run_dir, options, search = directory.run_dir(job.trial), directory.search.options, directory.search
    config = directory.file(job, ".toml")
    config.write_text(search.run_config(job, str(run_dir.resolve())).to_toml(), encoding="utf-8")
    words = [sys.executable, "-P", "-m", "ringlet", "train", "-n", str(options.workers)]
    words += ["--config", str(config.resolve()), "--launcher", options.launcher]
    words += ["--hosts", options.hosts] if options.hosts else []
    engine = search.base.engine.name
    with directory.file(job, ".log").open("wb") as log:
        return start_guarded(words, run_environment(engine, os.environ), log.fileno())


def _ask_to_leave(own: _Running, *, insists: bool) -> None:
    """The first signal lets a run save what it has; a second one or a long wait ends it at once."""
    if own.asked_to_leave is None:
        own.asked_to_leave = time.monotonic()
        own.process.send_signal(signal.SIGTERM)
    elif insists or time.monotonic() - own.asked_to_leave > LEAVE_SECONDS:
        own.process.kill()


def _record(directory: TuneDirectory, job: Job, code: int) -> Record:
    values, metric = directory.search.values(job), directory.search.metric
    try:
        if code == EXIT_OK:
            return _finished(job, values, read_measurement(directory.run_dir(job.trial) / EVENTS), metric)
        reason = failure_reason(directory.file(job, ".log"), code)
    except DataError as error:
        reason = str(error)
    status: Status = "diverged" if code == EXIT_DIVERGED else "failed"
    return Record(job.trial, job.epochs, values, status, None, (), 0.0, reason)


def _finished(job: Job, values: dict[str, object], run: Measurement, metric: str) -> Record:
    curve = tuple(epoch.metrics.get(metric) for epoch in run.epochs)
    seconds = sum(epoch.seconds for epoch in run.epochs)
    if curve[-1] is None:
        reason = f"{metric} is not a finite number after epoch {len(curve)}"
        return Record(job.trial, job.epochs, values, "diverged", None, curve, seconds, reason)
    return Record(job.trial, job.epochs, values, "finished", curve[-1], curve, seconds, run.stopped)


def _progress(search: Search, record: Record, records: Records, before: int, seconds: float) -> TrialProgress:
    done, total = _epochs_done(records), search.options.method.num_epochs(search.question)
    left = max(total - done, 0) * seconds / max(done - before, 1)
    return TrialProgress(record, best_record(search, records.values()), done, total, left)


def _epochs_done(records: Records) -> int:
    """Epochs of all trials; one that failed counts as trained, since nothing more will be."""
    longest: dict[int, int] = {}
    for trial, epochs in records:
        longest[trial] = max(longest.get(trial, 0), epochs)
    return sum(longest.values())


def _drop_networks(directory: TuneDirectory, records: Records, waiting: Iterable[tuple[int, int]], stage: int) -> None:
    """Remove the networks of trials that are trained no further, but for the best one.

    Trials that have done the stage of ``stage`` epochs may be chosen for the next one.
    """
    search = directory.search
    if search.options.keep_models:
        return
    best = best_record(search, records.values())
    kept = {trial for trial, _ in waiting} | (set() if best is None else {best.trial})
    if stage < search.question.num_epochs:
        kept |= {trial for (trial, epochs), own in records.items() if epochs == stage and own.value is not None}
    for trial in {trial for trial, _ in records} - kept:
        directory.drop_network(trial)
