"""A run goes on from each of its steps with more workers, and again with more, and ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("resume_checks.py")
STEPS = range(1, 40)
pytestmark = pytest.mark.xdist_group("resume_workers")  # one process makes the journeys for all tests


@pytest.fixture(scope="module")
def journeys(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """Digests at the end: of one worker's run, then by the step from which two, and at the next step four, went on."""
    folder = tmp_path_factory.mktemp("journeys")
    environment = {"RINGLET_CACHE": str(folder / "cache"), "RINGLET_TUNING": "off"}

    def run(function: str, num_ranks: int, **arguments: Any) -> Any:
        kind = "single" if num_ranks == 1 else "node"
        return run_ranks(
            (CHECKS, function), num_ranks, communicator=kind, arguments=arguments, environment=environment, timeout=240
        )[0]

    whole = run("begin", 1, folder=str(folder / "1"))
    two = run("go_on", 2, sources={str(step): str(folder / "1") for step in STEPS}, target=str(folder / "2"))
    sources = {str(step + 1): str(folder / "2" / str(step)) for step in STEPS[:-1]}
    four = run("go_on", 4, sources=sources, target=str(folder / "4"))
    return {1: whole, 2: two, 4: four}


@pytest.mark.parametrize("step", STEPS)
def test_from_one_worker_to_two_at_any_step(journeys: dict[int, Any], step: int) -> None:
    assert journeys[2][str(step)] == journeys[1]


@pytest.mark.parametrize("step", STEPS[1:])
def test_and_on_to_four(journeys: dict[int, Any], step: int) -> None:
    assert journeys[4][str(step)] == journeys[1]


def test_what_a_compression_has_kept_back_is_kept_over_a_break(tmp_path: Path) -> None:
    environment = {"RINGLET_CACHE": str(tmp_path / "cache"), "RINGLET_TUNING": "off", "RINGLET_RANKS_PER_NODE": "1"}
    options = {"compression": "topk:0.1", "num_epochs": 2, "shards": None, "overlap": "off"}

    def run(function: str, **arguments: Any) -> Any:
        job = {**options, **arguments}
        return run_ranks((CHECKS, function), 2, communicator="mpi", arguments=job, environment=environment)[0]

    whole = run("begin", folder=str(tmp_path / "whole"))
    assert {"kept_back_0", "kept_back_1"} <= set(whole)
    assert run("go_on", sources={"7": str(tmp_path / "whole")}, target=str(tmp_path / "resumed")) == {"7": whole}


def test_scaled_learning_rates_stay_when_workers_leave(tmp_path: Path) -> None:
    """The global batch stays, so the rate that fits it stays too."""
    options = {"learning_rate": 0.01, "learning_rate_scaling": True, "lr_schedulers": ["warm_up"]}

    def run(num_ranks: int, **changes: Any) -> list[float]:
        kind = "single" if num_ranks == 1 else "node"
        arguments = {"folder": str(tmp_path / "run"), "checkpoint_every": "1 steps", **options, **changes}
        rates: list[float] = run_ranks((CHECKS, "rates"), num_ranks, communicator=kind, arguments=arguments)[0]
        return rates

    whole = run(2)
    assert whole[-1] == 0.02
    assert run(1, resume="7") == whole
