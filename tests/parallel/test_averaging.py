"""Local steps with averaging, and block momentum: formulas, equivalences, guards, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategy_checks import weights_of

from ringlet.checkpoint import CheckpointStore

CHECKS = Path(__file__).with_name("strategy_checks.py")
pytestmark = pytest.mark.xdist_group("averaging")  # one process starts the ranks for all tests
MLP = {"model": "simplemlp", "dataset": "digits", "dtype": "float64", "global_batch_size": 100, "num_epochs": 2}
NORM = MLP | {"model": "vgg1dobn", "steps_per_epoch": 5, "num_epochs": 1}
SGD = {"optimizer": "sgd", "learning_rate": 0.1}
MOMENTUM = SGD | {"momentum": 0.9, "nesterov": True, "decay": 1e-3}
JOBS: dict[str, dict[str, Any]] = {
    "sync": MLP | SGD,
    "average:1": MLP | SGD | {"strategy": "average:1"},
    "sync with momentum": NORM | MOMENTUM,
    "average:1 with momentum": NORM | MOMENTUM | {"strategy": "average:1"},
    "sync of passes": NORM | SGD | {"accumulate": 2, "clip_value": 10.0},
    "average:1 of passes": NORM | SGD | {"accumulate": 2, "clip_value": 10.0, "strategy": "average:1"},
    "average:4": MLP | {"strategy": "average:4", "digest_every": 3, "clip_norm": 5.0},
    "bmuf:4 without momentum": MLP | {"strategy": "bmuf:4,block_momentum=0", "digest_every": 3, "clip_norm": 5.0},
    "bmuf:4": MLP | {"strategy": "bmuf:4"},
}
FORMULAS = [("average:2", 0.0), ("average:2", 0.9), ("bmuf:2,classical", 0.5), ("bmuf:2,block_rate=0.5", 0.0)]
SKIPPING = MLP | {"strategy": "bmuf:5", "on_nan": "skip", "bad_rank": 1, "bad_step": 1, "num_epochs": 1}
SKIPPING |= {"checkpoint_every": "1 steps", "keep": 0}
SIGNALLED = MLP | {"strategy": "average:4", "steps_per_epoch": 10, "at_step": 5}
LAYOUTS = {
    "2 ranks": (2, "node", {}),
    "3 ranks on 2 machines": (3, "mpi", {"RINGLET_RANKS_PER_NODE": "2"}),
}


@pytest.fixture(params=LAYOUTS, scope="session")
def layout(request: pytest.FixtureRequest) -> Any:
    """Number of ranks, communicator, environment."""
    return request.param, *LAYOUTS[request.param]


@pytest.fixture
def results(layout: Any, run_once: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """Of all trainings and formulas, by rank."""
    name, num_ranks, communicator, environment = layout
    return run_once(
        f"averaging {name}",
        (CHECKS, "run_all"),
        num_ranks,
        communicator=communicator,
        environment=environment,
        arguments={
            "jobs": {"train": ("train_all", {"jobs": JOBS}), "formulas": ("follow_formulas", {"jobs": FORMULAS})}
        },
        timeout=120,
    )


@pytest.fixture
def trained(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of all trainings, by rank."""
    return [result["train"] for result in results]


@pytest.fixture(scope="session")
def disturbed(run_once: Callable[..., list[Any]], job_folder: Path) -> Callable[[str], list[Any]]:
    """``disturbed(name)``: what ranks that go their own way, fail, resume or are stopped have seen."""
    folder = job_folder / "averaging"
    resumed = NORM | {"num_epochs": 2, "optimizer": "adam", "checkpoint_every": "3 steps", "cut": 3}
    of_two = {
        "apart": ("apart", MLP | {"strategy": "average:3", "num_epochs": 1, "steps_per_epoch": 7}),
        "skip": ("bad_gradient", SKIPPING | {"run_dir": str(folder / "skip")}),
        "average:4": ("resume", resumed | {"strategy": "average:4", "folder": str(folder / "average")}),
        "bmuf:4": ("resume", resumed | {"strategy": "bmuf:4", "folder": str(folder / "bmuf")}),
        "signal": ("interrupted", SIGNALLED | {"folder": str(folder / "signal")}),
    }
    bad = MLP | {"strategy": "average:5", "steps_per_epoch": 7, "bad_rank": 1}
    of_three = {f"bad step {step}": ("bad_gradient", bad | {"bad_step": step}) for step in (3, 7)}

    def results(name: str) -> list[Any]:
        jobs = of_two if name in of_two else of_three
        num_ranks = 2 if name in of_two else 3
        found = run_once(f"averaging, disturbed {num_ranks}", (CHECKS, "run_all"), num_ranks, arguments={"jobs": jobs})
        return [result[name] for result in found]

    return results


def assert_close(first: dict[str, Any], second: dict[str, Any]) -> None:
    np.testing.assert_allclose(weights_of(first), weights_of(second), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(first["state"], second["state"], rtol=1e-9, atol=1e-12)
    for one, other in zip(first["epochs"], second["epochs"], strict=True):
        assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("kind", ["", " with momentum", " of passes"])
def test_averaging_after_every_step_is_synchronous_training(trained: list[dict[str, Any]], kind: str) -> None:
    assert_close(trained[0][f"average:1{kind}"], trained[0][f"sync{kind}"])


def test_block_momentum_of_zero_is_averaging_to_the_bit(trained: list[dict[str, Any]]) -> None:
    assert trained[0]["bmuf:4 without momentum"] | {"optimizer": {}} == trained[0]["average:4"] | {"optimizer": {}}
    assert trained[0]["bmuf:4"]["weights"] != trained[0]["average:4"]["weights"]


def test_all_ranks_end_with_the_same(trained: list[dict[str, Any]]) -> None:
    assert all(result == trained[0] for result in trained[1:])


def test_every_strategy_has_learned(trained: list[dict[str, Any]]) -> None:
    for name in ("average:4", "bmuf:4"):
        epochs = trained[0][name]["epochs"]
        assert epochs[-1]["loss"] < 0.75 * epochs[0]["loss"]


def test_rounds_follow_their_formulas(results: list[dict[str, Any]]) -> None:
    for result in results:
        for found in result["formulas"]:
            assert found["moved"] > 0.1
            assert max(found["parameters"], found["state"], found["velocity"]) < 1e-12


def test_ranks_go_their_own_way_between_rounds(disturbed: Any) -> None:
    for result in disturbed("apart"):
        assert result["equal"] == [1, 4, 7]
        assert result["at_end"]


@pytest.mark.parametrize("bad_step", [3, 7], ids=["within an epoch", "after its last round"])
def test_a_bad_gradient_of_one_rank_stops_all_at_the_next_round(disturbed: Any, bad_step: int) -> None:
    results = disturbed(f"bad step {bad_step}")
    assert {result["steps"] for result in results} == {5 if bad_step == 3 else 7}
    assert len({result["message"] for result in results}) == 1
    assert f"(update {bad_step}): the loss is" in results[0]["message"]
    assert "is not finite in shard 1 of 3" in results[0]["message"]
    assert all(result["finite"] and result["equal"] for result in results)


def test_a_rank_may_skip_a_bad_gradient_alone(disturbed: Any, job_folder: Path) -> None:
    """In its very first step, which is saved: the checkpoint counts for all ranks."""
    results = disturbed("skip")
    assert [result["skipped"] for result in results] == [0, 1]
    progress = CheckpointStore(job_folder / "averaging" / "skip").load(1).training["progress"]
    assert (progress["num_skipped"], progress["totals"][-1]) == (1, 50)
    assert all(result["finite"] and result["equal"] and not result["message"] for result in results)


@pytest.mark.parametrize("strategy", ["average:4", "bmuf:4"])
def test_a_run_goes_on_from_a_checkpoint_within_an_epoch_to_the_bit(disturbed: Any, strategy: str) -> None:
    results = disturbed(strategy)
    for result in results:
        whole, resumed = result["whole"], result["resumed"]
        for one, other in zip(whole.pop("epochs"), resumed.pop("epochs"), strict=True):
            assert one == pytest.approx(other, rel=1e-12)  # sums of ranks, added in another order
        assert resumed == whole
    assert ("block_update" in results[0]["whole"]["optimizer"]) == strategy.startswith("bmuf")


def test_a_signal_to_one_rank_stops_all_at_the_next_round_and_the_run_goes_on(disturbed: Any) -> None:
    for result in disturbed("signal"):
        assert result["stopped"] == 8
        assert result["steps"] == 20
        assert "after 8 updates" in result["message"]
