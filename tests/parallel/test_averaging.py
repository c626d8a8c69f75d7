"""Local steps with averaging, and block momentum: formulas, equivalences, guards, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import run_ranks
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
LAYOUTS = {
    "2 ranks": (2, "node", {}),
    "3 ranks on 2 machines": (3, "mpi", {"RINGLET_RANKS_PER_NODE": "2"}),
}


@pytest.fixture(params=LAYOUTS, scope="session")
def layout(request: pytest.FixtureRequest) -> Any:
    """Number of ranks, communicator, environment."""
    return request.param, *LAYOUTS[request.param]


@pytest.fixture
def trained(layout: Any, run_once: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """The results of all jobs, by rank."""
    name, num_ranks, communicator, environment = layout
    return run_once(
        f"averaging {name}",
        (CHECKS, "train_all"),
        num_ranks,
        communicator=communicator,
        environment=environment,
        arguments={"jobs": JOBS},
        timeout=120,
    )


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


def test_rounds_follow_their_formulas(layout: Any) -> None:
    _, num_ranks, communicator, environment = layout
    results = run_ranks(
        (CHECKS, "follow_formulas"),
        num_ranks,
        communicator=communicator,
        environment=environment,
        arguments={"jobs": FORMULAS},
    )
    for result in results:
        for found in result:
            assert found["moved"] > 0.1
            assert max(found["parameters"], found["state"], found["velocity"]) < 1e-12


def test_ranks_go_their_own_way_between_rounds() -> None:
    options = MLP | {"strategy": "average:3", "num_epochs": 1, "steps_per_epoch": 7}
    for result in run_ranks((CHECKS, "apart"), 2, arguments=options):
        assert result["equal"] == [1, 4, 7]
        assert result["at_end"]


@pytest.mark.parametrize("bad_step", [3, 7], ids=["within an epoch", "after its last round"])
def test_a_bad_gradient_of_one_rank_stops_all_at_the_next_round(bad_step: int) -> None:
    options = MLP | {"strategy": "average:5", "steps_per_epoch": 7, "bad_rank": 1, "bad_step": bad_step}
    results = run_ranks((CHECKS, "bad_gradient"), 3, arguments=options)
    assert {result["steps"] for result in results} == {5 if bad_step == 3 else 7}
    assert len({result["message"] for result in results}) == 1
    assert f"(update {bad_step}): the loss is" in results[0]["message"]
    assert "is not finite in shard 1 of 3" in results[0]["message"]
    assert all(result["finite"] and result["equal"] for result in results)


def test_a_rank_may_skip_a_bad_gradient_alone(tmp_path: Path) -> None:
    """In its very first step, which is saved: the checkpoint counts for all ranks."""
    options = MLP | {"strategy": "bmuf:5", "on_nan": "skip", "bad_rank": 1, "bad_step": 1, "num_epochs": 1}
    options |= {"run_dir": str(tmp_path), "checkpoint_every": "1 steps", "keep": 0}
    results = run_ranks((CHECKS, "bad_gradient"), 2, arguments=options)
    assert [result["skipped"] for result in results] == [0, 1]
    progress = CheckpointStore(tmp_path).load(1).training["progress"]
    assert (progress["num_skipped"], progress["totals"][-1]) == (1, 50)
    assert all(result["finite"] and result["equal"] and not result["message"] for result in results)


@pytest.mark.parametrize("strategy", ["average:4", "bmuf:4"])
def test_a_run_goes_on_from_a_checkpoint_within_an_epoch_to_the_bit(tmp_path: Path, strategy: str) -> None:
    options = NORM | {"strategy": strategy, "num_epochs": 2, "optimizer": "adam", "checkpoint_every": "3 steps"}
    results = run_ranks((CHECKS, "resume"), 2, arguments={**options, "folder": str(tmp_path), "cut": 3})
    for result in results:
        whole, resumed = result["whole"], result["resumed"]
        for one, other in zip(whole.pop("epochs"), resumed.pop("epochs"), strict=True):
            assert one == pytest.approx(other, rel=1e-12)  # sums of ranks, added in another order
        assert resumed == whole
    assert ("block_update" in results[0]["whole"]["optimizer"]) == strategy.startswith("bmuf")


def test_a_signal_to_one_rank_stops_all_at_the_next_round_and_the_run_goes_on(tmp_path: Path) -> None:
    options = MLP | {"strategy": "average:4", "steps_per_epoch": 10, "at_step": 5, "folder": str(tmp_path / "run")}
    results = run_ranks((CHECKS, "interrupted"), 2, arguments=options)
    for result in results:
        assert result["stopped"] == 8
        assert result["steps"] == 20
        assert "after 8 updates" in result["message"]
