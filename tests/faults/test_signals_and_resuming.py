"""Signals to the launcher of a run, and going on by hand."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from supervised import is_stopped, rank_process, wait_until


def stopped_in_the_second_epoch(runs, phase="forward", step=7):
    """A run whose rank 1 is stopped in this step, and that rank's process."""
    job = runs.start_training("--restarts", 3, faults=[f"stop@rank=1,step={step},phase={phase},once"])
    job.wait_for("Epoch 1/2", stream="stderr")
    process = rank_process(job, 1)
    wait_until(lambda: is_stopped(process))
    return job, process


@pytest.mark.parametrize(("phase", "step", "last"), [("forward", 7, 7), ("update", 6, 7), ("save", 8, 9)])
def test_sigterm_saves_and_leaves_and_the_run_can_go_on(runs, undisturbed, phase, step, last):
    """Ranks agree to stop while they agree on the figures of a step: a signal after that counts in the next one."""
    job, process = stopped_in_the_second_epoch(runs, phase, step)
    job.process.send_signal(signal.SIGTERM)
    wait_until(lambda: is_stopped(process, signal.SIGTERM))
    os.kill(process, signal.SIGCONT)
    run = runs.finish(job)
    assert (run.exit_code, run.restarts) == (5, []), run.stderr
    assert "The model is saved" in run.stderr
    assert max(path.name for path in (run.path / "checkpoints").iterdir()) == f"step-{last:08d}"
    runs.resume("-n", 2).check_same_as(undisturbed())


def test_a_second_sigterm_leaves_at_once_and_the_run_can_go_on(runs, undisturbed):
    job, process = stopped_in_the_second_epoch(runs)
    job.process.send_signal(signal.SIGTERM)
    wait_until(lambda: is_stopped(process, signal.SIGTERM))
    job.process.send_signal(signal.SIGTERM)
    run = runs.finish(job)
    assert (run.exit_code, run.restarts) == (128 + signal.SIGTERM, []), run.stderr
    runs.resume("-n", 2).check_same_as(undisturbed())


def test_a_signal_between_two_attempts_ends_it(runs, undisturbed):
    words, kill = ("--restarts", 3), ["kill@rank=1,step=7,phase=forward,once"]
    job = runs.start_training(*words, faults=kill, RINGLET_RESTART_DELAY="600")
    job.wait_for("starting 2 workers again in 600 s", stream="stderr")
    job.process.send_signal(signal.SIGTERM)
    run = runs.finish(job)
    assert run.exit_code == 128 + signal.SIGTERM
    assert run.stderr.endswith("stopped while waiting to start again\n")
    runs.resume("-n", 2).check_same_as(undisturbed())


@pytest.fixture(scope="session")
def six_steps(runs_for_all):
    """A run of four shards at two workers that has come to step 6, and was not started again."""
    run = runs_for_all("broken-off").train("--shards", 4, "--keep", 0, faults=["kill@rank=1,step=7,phase=forward"])
    assert run.exit_code == 3
    return run


@pytest.fixture
def broken_off(runs, six_steps):
    """A copy of it."""
    return replace(six_steps, path=Path(shutil.copytree(six_steps.path, runs.folder / "run")))


of_one_run = pytest.mark.xdist_group("broken off")  # one process makes the run for all tests


@of_one_run
def test_another_number_of_workers_ends_with_the_same_bits(runs, undisturbed, broken_off):
    for number in (1, 4):
        shutil.copytree(broken_off.path, runs.folder / f"with{number}")
        runs.resume("-n", number, run=f"with{number}").check_same_as(undisturbed("--shards", 4, "--keep", 0))


@of_one_run
@pytest.mark.parametrize(("phase", "step"), [("start", 0), ("load", 0), ("forward", 7)])
def test_a_named_checkpoint_counts_until_there_is_a_newer_one(runs, undisturbed, broken_off, phase, step):
    fault = f"kill@rank=0,step={step},phase={phase},once"
    run = runs.resume("-n", 2, "--at", 2, "--restarts", 1, run=broken_off.path.name, faults=[fault])
    run.check_same_as(undisturbed("--shards", 4, "--keep", 0))
    resumed_at = [event["step"] for event in run.events("run_resumed")]
    if step:
        assert resumed_at in ([2, 4], [2, 6])  # the write of step 6 may not have ended
    else:
        assert resumed_at == [2]


@of_one_run
def test_a_resumed_run_is_supervised(runs, undisturbed, broken_off):
    run = runs.resume("-n", 2, "--restarts", 1, faults=["kill@rank=1,step=9,phase=update,once"])
    run.check_same_as(undisturbed("--shards", 4, "--keep", 0))
    assert len(run.restarts) == 1
