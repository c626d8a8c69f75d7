"""Training on several ranks equals training on one: to float tolerance by default, to the bit with shards."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("training_checks.py")
MLP = {"model": "simplemlp", "dataset": "digits"}
CNN = {"model": "simplecnn", "dataset": "digits"}
EXACT_MLP, EXACT_CNN = MLP | {"dtype": "float64"}, CNN | {"dtype": "float64"}
"""In float64 the order of additions hardly matters, so that a real difference cannot hide in a wide tolerance."""
WITH_NORM_AND_DROPOUT = {"model": "vgg1dobn", "dataset": "digits"}
SHORT = {"num_epochs": 2, "global_batch_size": 100, "num_samples": None, "steps_per_epoch": 0, "seed": 5}


def train(num_ranks: int, communicator: str = "node", environment: Any = None, **options: Any) -> dict[str, Any]:
    """The result, which must be the same on every rank."""
    kind = communicator if num_ranks > 1 or communicator == "mpi" else "single"
    results = run_ranks(
        (CHECKS, "train"), num_ranks, communicator=kind, arguments={**SHORT, **options}, environment=environment
    )
    assert all(result == results[0] for result in results[1:])
    return dict(results[0])


def assert_close(first: dict[str, Any], second: dict[str, Any]) -> None:
    np.testing.assert_allclose(first["first_weights"], second["first_weights"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(first["values"], second["values"], rtol=1e-9)
    for one, other in zip(first["epochs"], second["epochs"], strict=True):
        assert one == pytest.approx(other, rel=1e-8)
    assert first["test"] == pytest.approx(second["test"], rel=1e-8)


@pytest.mark.parametrize("network", [EXACT_MLP, EXACT_CNN], ids=["mlp", "cnn"])
@pytest.mark.parametrize("communicator", ["node", "mpi"])
def test_ranks_together_equal_one_rank_at_the_same_global_batch(network: Any, communicator: str) -> None:
    alone = train(1, **network)
    for num_ranks in (2, 3, 4):
        assert_close(train(num_ranks, communicator, **network), alone)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (MLP, {"shards": 4}),
        (CNN, {"shards": 6, "clip_norm": 0.5}),
        (CNN, {"shards": 5, "optimizer": "lars", "learning_rate": 0.5}),
        (WITH_NORM_AND_DROPOUT, {"shards": 4, "num_epochs": 1}),
        (WITH_NORM_AND_DROPOUT, {"shards": 7, "num_epochs": 1, "kernels": "reference", "steps_per_epoch": 4}),
        (MLP, {"shards": 4, "partition": "contiguous", "flip_images": True}),
        (CNN, {"shards": 4, "optimizer": "sgd", "momentum": 0.9, "dtype": "float64", "clip_value": 0.01}),
    ],
    ids=["mlp", "clipped", "lars", "norm and dropout", "reference", "contiguous", "float64"],
)
def test_with_shards_any_number_of_ranks_gives_the_same_bits(network: Any, options: Any) -> None:
    alone = train(1, **network, **options)
    for num_ranks in (2, 3, 4):
        assert train(num_ranks, **network, **options) == alone


def test_with_shards_several_machines_give_the_same_bits() -> None:
    options = {**WITH_NORM_AND_DROPOUT, "shards": 6, "num_epochs": 1, "clip_norm": 1.0}
    alone = train(1, **options)
    for num_ranks, per_machine in ((4, "2"), (3, "1"), (3, "2")):
        assert train(num_ranks, "mpi", {"RINGLET_RANKS_PER_NODE": per_machine}, **options) == alone


def test_several_machines_equal_one_rank_by_default() -> None:
    alone = train(1, **EXACT_CNN)
    assert_close(train(4, "mpi", {"RINGLET_RANKS_PER_NODE": "2"}, **EXACT_CNN), alone)
    assert_close(train(3, "mpi", {"RINGLET_RANKS_PER_NODE": "2"}, **EXACT_CNN), alone)


def test_ranks_of_torch_equal_one_rank() -> None:
    assert_close(train(2, "torch", **EXACT_MLP), train(1, **EXACT_MLP))


@pytest.mark.parametrize("per_machine", ["1", "2"])
def test_exchange_during_the_backward_pass_changes_no_bit(per_machine: str) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": per_machine}
    options = {**WITH_NORM_AND_DROPOUT, "num_epochs": 1}
    results = [train(2, "mpi", environment, overlap=overlap, **options) for overlap in ("off", "on", "auto")]
    assert results[1] == results[2] == results[0]


def test_one_rank_computes_passes_one_after_the_other_like_ranks_side_by_side() -> None:
    accumulated = train(1, **WITH_NORM_AND_DROPOUT, accumulate=2, num_epochs=1)
    side_by_side = train(2, **WITH_NORM_AND_DROPOUT, num_epochs=1, overlap="off")
    np.testing.assert_allclose(accumulated["first_weights"], side_by_side["first_weights"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("compression", ["fp16", "bf16", "topk:0.25"])
def test_compressed_gradients_between_machines_still_learn(compression: str) -> None:
    environment, options = {"RINGLET_RANKS_PER_NODE": "1"}, {**CNN, "learning_rate": 0.01}
    result = train(2, "mpi", environment, **options, compression=compression)
    plain = train(2, "mpi", environment, **options)
    assert result["weights"] != plain["weights"]
    assert result["epochs"][-1]["loss"] < 0.75 * result["epochs"][0]["loss"]
    assert result["test"]["loss"] < 1.5 * plain["test"]["loss"] + 0.1


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_machine_holds_parameters_once_and_the_optimizers_state_once_in_all(num_ranks: int) -> None:
    results = run_ranks((CHECKS, "own_memory"), num_ranks, arguments=CNN)
    assert {result["seen"] for result in results} == {42.0}
    for name in ("first", "second"):
        held = [result["held"][name] for result in results]
        assert sum(held) == results[0]["num_parameters"]
        assert max(held) - min(held) <= 8192


@pytest.mark.parametrize("bad_rank", [0, 2])
def test_a_gradient_that_is_not_finite_stops_all_ranks_before_the_update(bad_rank: int) -> None:
    results = run_ranks((CHECKS, "diverge"), 3, arguments={**MLP, "bad_rank": bad_rank, "local_batch_size": 32})
    assert all(result["unchanged"] for result in results)
    assert len({result["message"] for result in results}) == 1
    assert "(update 3): the loss is" in results[0]["message"]
    assert f"is not finite in shard {bad_rank} of 3" in results[0]["message"]
    assert "gradient of 'dense1.weight'" in results[0]["message"]


@pytest.mark.parametrize(("how", "steps"), [("callback", 18), ("interrupt", 3)])
def test_one_rank_that_wants_to_stop_stops_all(how: str, steps: int) -> None:
    arguments = {**MLP, "how": how, "num_epochs": 5, "global_batch_size": 72, "steps_per_epoch": 18}
    results = run_ranks((CHECKS, "stop"), 3, arguments=arguments)
    assert {result["steps"] for result in results} == {steps}
    assert len({result["weights"] for result in results}) == 1
    reasons = {result["stopped"] for result in results}
    assert reasons == ({"enough"} if how == "callback" else {"asked to stop", "another worker was interrupted"})


def test_the_trace_shows_every_phase_of_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    arguments = {**WITH_NORM_AND_DROPOUT, "path": str(path), "num_epochs": 1, "steps_per_epoch": 3}
    results = run_ranks((CHECKS, "timelines"), 2, arguments=arguments)
    assert results[0] == results[1]
    for seconds in results[0]["seconds"]:
        assert all(seconds[phase] > 0 for phase in ("data", "forward", "backward", "wait", "reduce", "update"))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 1}
    for rank in (0, 1):
        own = [event for event in spans if event["pid"] == rank]
        assert sum(event["name"] == "backward" for event in own) == 3
        for event, following in pairwise(own):
            assert event["ts"] + event["dur"] == pytest.approx(following["ts"], abs=0.01)
    assert min(event["ts"] for event in spans) == 0
