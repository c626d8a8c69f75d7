"""kill -9 of any rank in any phase: the supervised run ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from supervised import NUM_STEPS, OPTIONS, Finished

PHASES = {"start": 0, "load": 0, "forward": 9, "backward": 13, "reduce": 17, "update": 21, "save": 24, "exit": 30}
"""Where each phase is disturbed: before its death each attempt has gone on for so long that a checkpoint is written."""
NUM_EPOCHS = 6


class Death(NamedTuple):
    """Of a rank, in a phase of a step."""

    rank: int
    phase: str
    step: int

    def __str__(self) -> str:
        return f"{self.rank}-{self.phase}"


def deaths_of(rank: int) -> list[Death]:
    """In every phase. Nothing is loaded before a checkpoint is there: the other rank dies when that of step 2 is."""
    start, *others = (Death(rank, phase, step) for phase, step in PHASES.items())
    return [start, Death(1 - rank, "update", 5), *others]


DEATHS = {
    "local 0": deaths_of(0),
    "local 1": deaths_of(1),
    "mpi": [Death(1, "reduce", 7), Death(0, "save", 12)],
}
"""By run: the launcher and who dies."""


@pytest.fixture(scope="session")
def killed(runs_for_all: Any) -> Callable[[str], Finished]:
    """``killed(name)``: a run with the deaths of that name, which is done once."""

    @cache
    def run(name: str) -> Finished:
        faults = [f"kill@rank={death.rank},step={death.step},phase={death.phase},once" for death in DEATHS[name]]
        words = ("--num-epochs", NUM_EPOCHS, "--restarts", len(faults))
        return runs_for_all("killed").train(*words, faults=faults, launcher=name.split()[0])

    return run


def places() -> list[Any]:
    """Every death of every run."""
    return [
        pytest.param(name, number, id=f"{name}-{death}", marks=pytest.mark.xdist_group(f"killed {name}"))
        for name, deaths in DEATHS.items()
        for number, death in enumerate(deaths, 1)
    ]


@pytest.mark.parametrize(("name", "number"), places())
def test_a_killed_rank_is_told_and_changes_nothing(killed, undisturbed, name, number):
    if name == "mpi":
        pytest.importorskip("mpi4py")
    run, deaths = killed(name), DEATHS[name]
    run.check_same_as(undisturbed("--num-epochs", NUM_EPOCHS), NUM_EPOCHS)
    assert len(run.restarts) == len(deaths), run.stderr
    cause = f"rank {deaths[number - 1].rank} was killed by signal 9 (SIGKILL)"
    restart = run.restarts[number - 1]
    assert restart.startswith(f"restart {number} of {len(deaths)}: {cause} ")
    assert "starting 2 workers again" in restart
    told = {event["number"]: event["cause"] for event in run.events("run_restarted")}
    dies_before_it_tells = number < len(deaths) and deaths[number].phase == "load"
    assert told.get(number) == (None if dies_before_it_tells else cause)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(f"killed {name}")) for name in DEATHS]
)
def test_every_death_is_after_a_new_checkpoint(killed, name):
    """So that the end would show whatever an attempt between two deaths has done wrong."""
    if name == "mpi":
        pytest.importorskip("mpi4py")
    resumed_at = [event["step"] for event in killed(name).events("run_resumed")]
    assert len(resumed_at) == sum(death.phase not in ("start", "load") for death in DEATHS[name])
    assert all(earlier < later for earlier, later in pairwise(resumed_at)), resumed_at


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
