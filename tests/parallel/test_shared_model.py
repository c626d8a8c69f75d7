"""Asynchronous and soft-synchronous training: formulas, equivalences, guards, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import run_ranks
from strategy_checks import weights_of

from ringlet import Trainer
from ringlet.comm.single import SingleCommunicator
from ringlet.errors import ConfigError

CHECKS = Path(__file__).with_name("strategy_checks.py")
pytestmark = pytest.mark.xdist_group("shared_model")  # one process starts the ranks for all tests
MLP = {"model": "simplemlp", "dataset": "digits", "dtype": "float64", "global_batch_size": 100, "num_epochs": 2}
NORM = MLP | {"model": "vgg1dobn", "steps_per_epoch": 5, "num_epochs": 1}
SGD = {"optimizer": "sgd", "learning_rate": 0.1}
MOMENTUM = SGD | {"momentum": 0.9, "nesterov": True, "clip_norm": 0.5}
EQUAL: dict[str, dict[str, Any]] = {
    "sgd": MLP | SGD,
    "momentum and clipping": NORM | MOMENTUM,
    "passes": NORM | SGD | {"accumulate": 2},
}
STEPS = 13
"""Of one epoch of ``MLP``."""
JOBS = {
    **{f"sync {name}": options for name, options in EQUAL.items()},
    **{f"softsync:1 {name}": options | {"strategy": "softsync:1"} for name, options in EQUAL.items()},
    "async": MLP | {"strategy": "async"},
    "softsync:2": MLP | {"strategy": "softsync:2"},
    "async with norm": NORM | {"strategy": "async"},
}
LAYOUTS = {
    "2 ranks": (2, "node", {}),
    "4 ranks": (4, "node", {}),
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
        f"shared model {name}",
        (CHECKS, "train_all"),
        num_ranks,
        communicator=communicator,
        environment=environment,
        arguments={"jobs": JOBS},
        timeout=150,
    )


@pytest.fixture(scope="session")
def disturbed(run_once: Callable[..., list[Any]], job_folder: Path) -> Callable[[int, str], list[Any]]:
    """``disturbed(num_ranks, name)``: what ranks that fail, resume or are stopped have seen."""
    folder = job_folder / "shared model"
    bad, signal = MLP | {"bad_rank": 1, "bad_step": 3}, MLP | {"steps_per_epoch": 10, "at_step": 4}
    resume = NORM | {"strategy": "softsync:1", "num_epochs": 2, "checkpoint_every": "3 steps", "cut": 3}
    skip = bad | {"on_nan": "skip", "num_epochs": 1}
    jobs: dict[int, dict[str, tuple[str, dict[str, Any]]]] = {
        2: {
            **{f"skip {name}": ("bad_gradient", skip | {"strategy": name}) for name in ("async", "softsync:1")},
            "resume": ("resume", resume | {"folder": str(folder / "resume")}),
        },
        3: {
            f"bad {name}": ("bad_gradient", bad | {"strategy": name, "steps_per_epoch": 10})
            for name in ("async", "softsync:1")
        }
        | {
            f"signal {name}": (
                "interrupted",
                signal | {"strategy": name, "checkpoint_every": "6 steps", "folder": str(folder / name)},
            )
            for name in ("async", "softsync:2")
        },
    }

    def results(num_ranks: int, name: str) -> list[Any]:
        arguments = {"jobs": jobs[num_ranks]}
        found = run_once(f"shared model, disturbed {num_ranks}", (CHECKS, "run_all"), num_ranks, arguments=arguments)
        return [result[name] for result in found]

    return results


@pytest.mark.parametrize("name", EQUAL)
def test_soft_synchronous_with_all_ranks_is_synchronous(trained: list[dict[str, Any]], name: str) -> None:
    soft, sync = trained[0][f"softsync:1 {name}"], trained[0][f"sync {name}"]
    np.testing.assert_allclose(weights_of(soft), weights_of(sync), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(soft["state"], sync["state"], rtol=1e-9, atol=1e-12)
    for one, other in zip(soft["epochs"], sync["epochs"], strict=True):
        assert one == pytest.approx(other, rel=1e-8)
    assert all(highest == 0 for _, highest, _ in soft["staleness"])
    assert sync["staleness"] == []


@pytest.mark.parametrize("name", ["async", "softsync:2"])
def test_staleness_is_measured_for_every_gradient(trained: list[dict[str, Any]], name: str) -> None:
    ages = trained[0][name]["staleness"]
    assert len(ages) == 2
    for mean, highest, histogram in ages:
        assert sum(histogram) == STEPS * len(trained)
        assert len(histogram) == highest + 1
        assert mean == pytest.approx(np.average(np.arange(highest + 1), weights=histogram))


def test_all_ranks_end_with_the_same(trained: list[dict[str, Any]]) -> None:
    assert all(result == trained[0] for result in trained[1:])


@pytest.mark.parametrize("name", ["async", "softsync:2"])
def test_every_strategy_has_learned(trained: list[dict[str, Any]], name: str) -> None:
    epochs = trained[0][name]["epochs"]
    assert epochs[-1]["loss"] < 0.75 * epochs[0]["loss"]


@pytest.mark.parametrize("strategy", ["async", "softsync:1"])
def test_one_rank_alone_trains_as_ever_to_the_bit(strategy: str) -> None:
    weights = []
    for chosen in ("sync", strategy):
        trainer = Trainer(**NORM, strategy=chosen, communicator=SingleCommunicator())
        trainer.fit()
        weights.append(trainer.replica.parameters.flat)
    if strategy == "async":
        np.testing.assert_array_equal(*weights)
    else:
        np.testing.assert_allclose(*weights, rtol=1e-12)


@pytest.mark.parametrize(("communicator", "per_machine"), [("node", ""), ("mpi", "1")])
def test_the_learning_rate_is_divided_by_the_staleness(communicator: str, per_machine: str) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": per_machine} if per_machine else {}
    arguments = {"choice": "async"}
    results = run_ranks(
        (CHECKS, "grow_stale"), 2, communicator=communicator, environment=environment, arguments=arguments
    )
    after = np.array([-0.3, -0.6, -0.9, -0.9 - 0.3 / 3, -0.9 - 0.3 / 3 - 0.3])
    for result, turns in zip(results, ([0, 1, 2, 4], [3]), strict=True):
        np.testing.assert_allclose(result["seen"], [[turn, *[after[turn]] * 3] for turn in turns])
        np.testing.assert_allclose(result["end"], [after[-1]] * 3 + [4.0])
        assert result["staleness"] == [pytest.approx(4 / 5), 3, [3, 1, 0, 1]]


@pytest.mark.parametrize("strategy", ["async", "softsync:1"])
def test_a_bad_gradient_of_one_rank_stops_all_after_the_same_step(disturbed: Any, strategy: str) -> None:
    results = disturbed(3, f"bad {strategy}")
    assert len({result["steps"] for result in results}) == 1
    assert len({result["message"] for result in results}) == 1
    assert "(update 3): the loss is" in results[0]["message"]
    assert "is not finite in shard 1 of 3" in results[0]["message"]
    assert all(result["finite"] and result["equal"] for result in results)


@pytest.mark.parametrize("strategy", ["async", "softsync:1"])
def test_a_rank_may_skip_a_bad_gradient_alone(disturbed: Any, strategy: str) -> None:
    results = disturbed(2, f"skip {strategy}")
    assert [result["skipped"] for result in results] == [0, 1]
    assert all(result["finite"] and result["equal"] and not result["message"] for result in results)


def test_a_soft_synchronous_run_goes_on_to_the_bit(disturbed: Any) -> None:
    """Of two ranks: two numbers have one sum, whoever comes first."""
    for result in disturbed(2, "resume"):
        whole, resumed = result["whole"], result["resumed"]
        for one, other in zip(whole.pop("epochs"), resumed.pop("epochs"), strict=True):
            assert one == pytest.approx(other, rel=1e-12)
        assert resumed == whole


@pytest.mark.parametrize("strategy", ["async", "softsync:2"])
def test_a_signal_to_one_rank_stops_all_and_the_run_goes_on(disturbed: Any, strategy: str) -> None:
    results = disturbed(3, f"signal {strategy}")
    assert len({result["stopped"] for result in results}) == 1
    for result in results:
        assert 4 <= result["stopped"] <= 20
        assert result["steps"] == 20
        assert result["message"]


def test_more_groups_than_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="softsync:2 with 1 workers: expected 1"):
        Trainer(**MLP, strategy="softsync:2", communicator=SingleCommunicator())
