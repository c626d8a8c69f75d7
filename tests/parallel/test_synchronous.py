"""Training on several ranks equals training on one: to float tolerance by default, to the bit with shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("training_checks.py")
pytestmark = pytest.mark.xdist_group("synchronous")  # one process starts the ranks for all tests


class Layout(NamedTuple):
    """So many ranks of a communicator, on machines of so many ranks (0: as it is)."""

    num_ranks: int
    communicator: str = "node"
    ranks_per_node: int = 0


ALONE = Layout(1, "single")
TOGETHER = [Layout(num_ranks) for num_ranks in (2, 3, 4)]
BY_MPI = [Layout(num_ranks, "mpi") for num_ranks in (2, 3, 4)]
BY_TORCH = Layout(2, "torch")
MACHINES = [Layout(4, "mpi", 2), Layout(3, "mpi", 1), Layout(3, "mpi", 2)]
TWO_MACHINES, ONE_MACHINE = Layout(2, "mpi", 1), Layout(2, "mpi", 2)

MLP = {"model": "simplemlp", "dataset": "digits"}
CNN = {"model": "simplecnn", "dataset": "digits"}
EXACT_MLP, EXACT_CNN = MLP | {"dtype": "float64"}, CNN | {"dtype": "float64"}
"""In float64 the order of additions hardly matters, so that a real difference cannot hide in a wide tolerance."""
WITH_NORM_AND_DROPOUT = {"model": "vgg1dobn", "dataset": "digits"}
SHORT = {"num_epochs": 2, "global_batch_size": 100, "num_samples": None, "steps_per_epoch": 0, "seed": 5}
SHARDED = {
    "sharded mlp": MLP | {"shards": 4},
    "clipped": CNN | {"shards": 6, "clip_norm": 0.5},
    "lars": CNN | {"shards": 5, "optimizer": "lars", "learning_rate": 0.5},
    "norm and dropout": WITH_NORM_AND_DROPOUT | {"shards": 4, "num_epochs": 1},
    "reference": WITH_NORM_AND_DROPOUT | {"shards": 7, "num_epochs": 1, "kernels": "reference", "steps_per_epoch": 4},
    "contiguous": MLP | {"shards": 4, "partition": "contiguous", "flip_images": True},
    "bfloat16": WITH_NORM_AND_DROPOUT | {"shards": 6, "num_epochs": 1, "steps_per_epoch": 4, "dtype": "bfloat16"},
    "float64": CNN | {"shards": 4, "optimizer": "sgd", "momentum": 0.9, "dtype": "float64", "clip_value": 0.01},
}
SHARED = ("clipped", "lars", "norm and dropout")
"""Trained again by ranks that share one copy of the parameters, as they do with large networks."""
OVER_MACHINES = WITH_NORM_AND_DROPOUT | {"shards": 6, "num_epochs": 1, "clip_norm": 1.0}
COMPRESSED = {
    compression: CNN | {"learning_rate": 0.01, "compression": compression}
    for compression in ("none", "fp16", "bf16", "topk:0.25")
}
OVERLAPS = ("off", "on", "auto")
TRAININGS: dict[str, tuple[dict[str, Any], list[Layout]]] = {
    "mlp": (EXACT_MLP, [ALONE, *TOGETHER, *BY_MPI, BY_TORCH]),
    "cnn": (EXACT_CNN, [ALONE, *TOGETHER, *BY_MPI, MACHINES[0], MACHINES[2]]),
    **{name: (options, [ALONE, *TOGETHER]) for name, options in SHARDED.items()},
    **{f"shared {name}": (SHARDED[name] | {"shared_copy": True}, TOGETHER) for name in SHARED},
    "shared over machines": (OVER_MACHINES | {"shared_copy": True}, [MACHINES[0], MACHINES[2]]),
    "sharded over machines": (OVER_MACHINES, [ALONE, *MACHINES]),
    **{
        f"overlap {overlap}": (
            WITH_NORM_AND_DROPOUT | {"num_epochs": 1, "overlap": overlap},
            [TWO_MACHINES, ONE_MACHINE],
        )
        for overlap in OVERLAPS
    },
    "passes": (WITH_NORM_AND_DROPOUT | {"accumulate": 2, "num_epochs": 1}, [ALONE]),
    "side by side": (WITH_NORM_AND_DROPOUT | {"num_epochs": 1, "overlap": "off"}, [TOGETHER[0]]),
    **{name: (options, [TWO_MACHINES]) for name, options in COMPRESSED.items()},
}
"""What is trained, and by which ranks."""
STOPPING = MLP | {"num_epochs": 5, "global_batch_size": 72, "steps_per_epoch": 18}
OTHERS: dict[Layout, dict[str, tuple[str, dict[str, Any]]]] = {
    TOGETHER[0]: {
        "memory": ("own_memory", CNN),
        "interrupted validation": ("validate", MLP | {"num_samples": 400, "global_batch_size": 20}),
    },
    TOGETHER[1]: {
        "memory": ("own_memory", CNN),
        **{f"diverge {rank}": ("diverge", MLP | {"bad_rank": rank, "local_batch_size": 32}) for rank in (0, 2)},
        **{f"stop by {how}": ("stop", STOPPING | {"how": how}) for how in ("callback", "interrupt")},
    },
}
"""Functions of the checks, with their arguments, that the same ranks run."""


@pytest.fixture(scope="session")
def results(run_once: Callable[..., list[Any]]) -> Callable[[Layout, str], list[Any]]:
    """``results(layout, name)``: what a job gave on every rank; all jobs of a layout run in one start."""

    def of(layout: Layout, name: str) -> list[Any]:
        jobs = {job: ("train", SHORT | options) for job, (options, places) in TRAININGS.items() if layout in places}
        by_rank = run_once(
            f"synchronous {layout}",
            (CHECKS, "run_all"),
            layout.num_ranks,
            communicator=layout.communicator,
            environment={"RINGLET_RANKS_PER_NODE": str(layout.ranks_per_node)} if layout.ranks_per_node else {},
            arguments={"jobs": jobs | OTHERS.get(layout, {})},
            timeout=240,
        )
        return [result[name] for result in by_rank]

    return of


@pytest.fixture(scope="session")
def trained(results: Callable[[Layout, str], list[Any]]) -> Callable[[Layout, str], dict[str, Any]]:
    """``trained(layout, name)``: the result of a training, which must be the same on every rank."""

    def of(layout: Layout, name: str) -> dict[str, Any]:
        first, *others = results(layout, name)
        assert all(result == first for result in others)
        return dict(first)

    return of


def assert_close(first: dict[str, Any], second: dict[str, Any]) -> None:
    np.testing.assert_allclose(first["first_weights"], second["first_weights"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(first["values"], second["values"], rtol=1e-9)
    for one, other in zip(first["epochs"], second["epochs"], strict=True):
        assert one == pytest.approx(other, rel=1e-8)
    assert first["test"] == pytest.approx(second["test"], rel=1e-8)


@pytest.mark.parametrize("network", ["mlp", "cnn"])
@pytest.mark.parametrize("layouts", [TOGETHER, BY_MPI], ids=["node", "mpi"])
def test_ranks_together_equal_one_rank_at_the_same_global_batch(trained: Any, network: str, layouts: Any) -> None:
    alone = trained(ALONE, network)
    for layout in layouts:
        assert_close(trained(layout, network), alone)


@pytest.mark.parametrize("name", SHARDED)
def test_with_shards_any_number_of_ranks_gives_the_same_bits(trained: Any, name: str) -> None:
    alone = trained(ALONE, name)
    for layout in TOGETHER:
        assert trained(layout, name) == alone


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_copy_of_the_parameters_gives_the_same_bits(trained: Any, name: str) -> None:
    for layout in TOGETHER:
        assert trained(layout, f"shared {name}") == trained(layout, name)


def test_shared_copies_on_several_machines_give_the_same_bits(trained: Any) -> None:
    for layout in (MACHINES[0], MACHINES[2]):
        assert trained(layout, "shared over machines") == trained(ALONE, "sharded over machines")


def test_with_shards_several_machines_give_the_same_bits(trained: Any) -> None:
    alone = trained(ALONE, "sharded over machines")
    for layout in MACHINES:
        assert trained(layout, "sharded over machines") == alone


def test_several_machines_equal_one_rank_by_default(trained: Any) -> None:
    alone = trained(ALONE, "cnn")
    assert_close(trained(Layout(4, "mpi", 2), "cnn"), alone)
    assert_close(trained(Layout(3, "mpi", 2), "cnn"), alone)


def test_ranks_of_torch_equal_one_rank(trained: Any) -> None:
    assert_close(trained(BY_TORCH, "mlp"), trained(ALONE, "mlp"))


@pytest.mark.parametrize("layout", [TWO_MACHINES, ONE_MACHINE], ids=["1", "2"])
def test_exchange_during_the_backward_pass_changes_no_bit(trained: Any, layout: Layout) -> None:
    off, on, auto = (trained(layout, f"overlap {overlap}") for overlap in OVERLAPS)
    assert on == auto == off


def test_one_rank_computes_passes_one_after_the_other_like_ranks_side_by_side(trained: Any) -> None:
    accumulated, side_by_side = trained(ALONE, "passes"), trained(TOGETHER[0], "side by side")
    np.testing.assert_allclose(accumulated["first_weights"], side_by_side["first_weights"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("compression", ["fp16", "bf16", "topk:0.25"])
def test_compressed_gradients_between_machines_still_learn(trained: Any, compression: str) -> None:
    result, plain = trained(TWO_MACHINES, compression), trained(TWO_MACHINES, "none")
    assert result["weights"] != plain["weights"]
    assert result["epochs"][-1]["loss"] < 0.75 * result["epochs"][0]["loss"]
    assert result["test"]["loss"] < 1.5 * plain["test"]["loss"] + 0.1


@pytest.mark.parametrize("layout", TOGETHER[:2], ids=["2", "3"])
def test_a_machine_holds_large_parameters_and_the_optimizers_state_once(results: Any, layout: Layout) -> None:
    found = results(layout, "memory")
    assert {result["seen"] for result in found} == {42.0}
    for name in ("first", "second"):
        held = [result["held"][name] for result in found]
        assert sum(held) == found[0]["num_parameters"]
        assert max(held) - min(held) <= 8192


@pytest.mark.parametrize("bad_rank", [0, 2])
def test_a_gradient_that_is_not_finite_stops_all_ranks_before_the_update(results: Any, bad_rank: int) -> None:
    found = results(TOGETHER[1], f"diverge {bad_rank}")
    assert all(result["unchanged"] for result in found)
    assert len({result["message"] for result in found}) == 1
    assert "(update 3): the loss is" in found[0]["message"]
    assert f"is not finite in shard {bad_rank} of 3" in found[0]["message"]
    assert "gradient of 'dense1.weight'" in found[0]["message"]


@pytest.mark.parametrize(("how", "steps"), [("callback", 18), ("interrupt", 3)])
def test_one_rank_that_wants_to_stop_stops_all(results: Any, how: str, steps: int) -> None:
    found = results(TOGETHER[1], f"stop by {how}")
    assert {result["steps"] for result in found} == {steps}
    assert len({result["weights"] for result in found}) == 1
    reasons = {result["stopped"] for result in found}
    assert reasons == ({"enough"} if how == "callback" else {"asked to stop", "another worker was interrupted"})


def test_an_interrupted_validation_counts_on_no_rank(results: Any) -> None:
    """One rank looks after each of its batches; what it saw then is what all ranks go by."""
    first, last = results(TOGETHER[0], "interrupted validation")
    assert first == last
    assert first[0] is None
    assert first[-1] is not None
    assert all(totals in (None, first[-1]) for totals in first)


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
