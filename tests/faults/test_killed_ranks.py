"""kill -9 of any rank in any phase: the supervised run ends as if nothing had happened."""

from __future__ import annotations

import pytest
from supervised import NUM_STEPS, OPTIONS

STEPS = {"start": 0, "load": 0, "forward": 7, "backward": 7, "reduce": 7, "update": 7, "save": 4, "exit": 10}
"""Where each phase is disturbed; a step after the middle of the interval between two checkpoints."""


def faults(rank: int, phase: str) -> list[str]:
    """Nothing is loaded in a first attempt: it has to fail before, when the write of step 2 has ended for sure."""
    first = ["kill@rank=1,step=5,phase=update,once"] if phase == "load" else []
    return [*first, f"kill@rank={rank},step={STEPS[phase]},phase={phase},once"]


def check(runs, undisturbed, rank, phase, launcher):
    expected = faults(rank, phase)
    run = runs.train("--restarts", 3, faults=expected, launcher=launcher)
    run.check_same_as(undisturbed())
    assert len(run.restarts) == len(expected), run.stderr
    assert run.restarts[-1].startswith(f"restart {len(expected)} of 3: rank {rank} was killed by signal 9 (SIGKILL) ")
    assert "starting 2 workers again" in run.restarts[-1]
    told = run.events("run_restarted")[-1]
    assert (told["number"], told["cause"]) == (len(expected), f"rank {rank} was killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_changes_nothing(runs, undisturbed, rank, phase):
    check(runs, undisturbed, rank, phase, "local")


@pytest.mark.parametrize(("rank", "phase"), [(0, "save"), (1, "reduce")])
def test_nor_does_it_under_mpi(runs, undisturbed, rank, phase):
    pytest.importorskip("mpi4py")
    check(runs, undisturbed, rank, phase, "mpi")


def test_several_deaths_in_one_run_change_nothing(runs, undisturbed):
    deaths = [f"kill@rank={step % 2},step={step},phase=forward,once" for step in (3, 5, 7)]
    run = runs.train("--restarts", 3, faults=deaths)
    run.check_same_as(undisturbed())
    assert len(run.restarts) == 3


def test_without_restarts_a_death_ends_the_run(runs):
    run = runs.train(faults=["kill@rank=1,step=3,phase=forward"])
    assert (run.exit_code, run.restarts) == (3, [])
    assert "was killed by signal 9 (SIGKILL)" in run.stderr


@pytest.mark.parametrize("strategy", ["average:4", "async", "softsync:1"])
def test_workers_that_go_their_own_way_end_and_go_on_together(runs, strategy):
    """A rank dies in its update: none of the others waits for it for ever, and the run goes on to its end."""
    fault = "kill@rank=1,step=7,phase=update,once"
    words = ("train", "-n", 2, "--launcher", "local", "--run-dir", "run", "--restarts", 1, "--strategy", strategy)
    run = runs.finish(runs.start(*words, *OPTIONS, faults=[fault]))
    assert run.exit_code == 0, run.stderr
    assert len(run.restarts) == 1, run.stderr
    assert [event["step"] for event in run.events("step_finished")] == list(range(1, NUM_STEPS + 1))
    measured = [event["epoch"] for event in run.events("staleness_measured")]
    assert measured == ([] if strategy == "average:4" else [1, 2])
    assert (", staleness " in run.stderr) == (strategy != "average:4")
