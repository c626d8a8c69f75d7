"""Ranks that hang, fail or diverge, and what is not tried again."""

from __future__ import annotations

import os

from supervised import OPTIONS, Finished


def test_a_stopped_rank_is_found_and_the_job_started_again(runs, undisturbed):
    run = runs.train("--restarts", 3, "--stall-seconds", 2, faults=["stop@rank=1,step=7,phase=forward,once"])
    run.check_same_as(undisturbed())
    [restart] = run.restarts
    assert restart.startswith(f"restart 1 of 3: rank 0 of 2 on {os.uname().nodename} has made no progress for ")
    assert "rank 1 (step 6, its process " in restart
    assert "--- stacks of rank 0" in run.stderr


def test_an_exception_on_one_rank_is_told_and_tried_again(runs, undisturbed):
    run = runs.train("--restarts", 1, faults=["raise@rank=1,step=7,phase=backward,once"])
    run.check_same_as(undisturbed())
    [restart] = run.restarts
    assert restart.startswith("restart 1 of 1: rank 1 failed (ringlet.guards.faults.InjectedFault: a fault that ")
    assert run.stderr.count("Traceback") == 1


def test_a_rank_that_leaves_without_a_word_is_tried_again(runs, undisturbed):
    run = runs.train("--restarts", 1, faults=["exit@rank=0,step=7,phase=reduce,code=1,once"])
    run.check_same_as(undisturbed())
    [restart] = run.restarts
    assert restart.startswith("restart 1 of 1: rank 0 left with exit code 1 ")


def test_divergence_is_not_tried_again(runs):
    run = runs.train("--restarts", 3, "--on-nan", "stop", faults=["nan@rank=1,step=3,phase=backward"])
    assert (run.exit_code, run.restarts) == (4, [])
    assert "training diverged in epoch 1, step 3 (update 3)" in run.stderr


def test_a_mistake_is_not_tried_again(runs):
    run = runs.train("--restarts", 3, "--model", "resnet19")
    assert (run.exit_code, run.restarts, run.path.exists()) == (2, [], False)


def test_an_occupied_run_directory_is_refused_before_anything_starts(runs, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").touch()
    run = runs.train("--restarts", 3)
    assert (run.exit_code, run.restarts) == (2, [])
    assert "exists and is not empty" in run.stderr


def test_a_skipped_step_stays_skipped_after_a_restart(runs, undisturbed):
    skip, nan = ("--on-nan", "skip"), "nan@rank=1,step=3,phase=backward"
    expected = undisturbed(*skip, RINGLET_FAULT=nan)
    assert expected != undisturbed()
    run = runs.train(*skip, "--restarts", 1, faults=[nan, "kill@rank=1,step=8,phase=forward,once"])
    assert (run.exit_code, run.digest, len(run.restarts)) == (0, expected, 1), run.stderr
    assert [event["step"] for event in run.events("step_skipped")] == [3]


def test_restarts_that_are_used_up_are_told(runs):
    run = runs.train("--restarts", 1, faults=["kill@rank=1,step=5,phase=forward"])
    assert (run.exit_code, len(run.restarts)) == (3, 1)
    last = run.stderr.splitlines()[-1]
    assert last.startswith("no more restarts: rank 1 was killed by signal 9 (SIGKILL) after ")
    assert last.endswith("all 1 were used (--restarts 1)")


def test_a_job_that_makes_no_progress_is_given_up_early(runs):
    run = runs.train("--restarts", 9, faults=["raise@rank=0,phase=start"])
    assert (run.exit_code, len(run.restarts)) == (1, 1)
    last = run.stderr.splitlines()[-1]
    assert last.endswith("2 attempts in a row made no new checkpoint (1 of 9 restarts were used)")


def test_a_run_directory_that_was_not_given_is_the_same_in_all_attempts(runs, undisturbed, tmp_path):
    words = ("train", "-n", 2, "--launcher", "local", "--shards", 2, "--restarts", 1, *OPTIONS)
    job = runs.start(*words, faults=["kill@rank=0,step=7,phase=update,once"])
    done = job.finish()
    [run] = (tmp_path / "runs").iterdir()
    assert run.name.startswith("simplemlp-digits-")
    Finished(run, done.returncode, done.stderr).check_same_as(undisturbed())


def test_one_worker_is_supervised_as_well(runs, undisturbed):
    run = runs.train("-n", 1, "--restarts", 1, faults=["kill@rank=0,step=7,phase=update,once"])
    run.check_same_as(undisturbed())
    assert "starting 1 worker again" in run.restarts[0]
