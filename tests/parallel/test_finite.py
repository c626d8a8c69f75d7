"""Nothing that is not finite is applied or saved: statistics, sums, norms, updates; the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHECKS = Path(__file__).with_name("finite_checks.py")
pytestmark = pytest.mark.xdist_group("finite")  # one process starts the ranks for all tests


class Layout(NamedTuple):
    """So many ranks of a communicator, on machines of so many ranks (0: as it is)."""

    num_ranks: int
    communicator: str = "node"
    ranks_per_node: int = 0


ALONE, TOGETHER, MACHINES = Layout(1, "single"), Layout(2), Layout(3, "mpi", 2)
"""The last: two machines, one rank of which owns nothing."""
SYNCHRONOUS = {
    "sync": {},
    "during the backward pass": {"overlap": "on"},
    "shards": {"shards": 6},
    "clipped": {"clip_norm": 1.0},
    "torch": {"engine": "torch"},
}
APART = {name: {"strategy": name} for name in ("average:2", "bmuf:2", "async", "softsync:1")}
APART |= {f"{name} of passes": {"strategy": name, "accumulate": 2} for name in ("average:2", "softsync:1")}
HUGE_SAMPLE = {"sample": 1e21, "norm": True}
"""Whose variance is not finite in float32, while loss and gradients are."""
LARGE_SAMPLE = {"sample": -1e9, "norm": False}
"""Whose gradients are finite, but not in float16."""
FP16 = {
    "fp16": {"compression": "fp16"},
    "fp16 during the backward pass": {"compression": "fp16", "overlap": "on"},
    "fp16 and clipped by value": {"compression": "fp16", "clip_value": 0.1},
    "fp16 and clipped by norm": {"compression": "fp16", "clip_norm": 1.0},
}
SGD = {"optimizer": "sgd", "learning_rate": 0.1}
OVERFLOWS: dict[str, tuple[dict[str, Any], str]] = {
    "of sums": (SGD | {"value": 3e38}, "sum of all shards' gradients of 'conv1.weight' is not finite"),
    "of sums with topk": (SGD | {"value": 3e38, "compression": "topk:0.5"}, "with compression topk:0.5, is not finite"),
    "of sums with bf16": (SGD | {"value": 3e38, "compression": "bf16"}, "with compression bf16 (largest value"),
    "of sums clipped by value": (SGD | {"value": 3e38, "clip_value": 1.0}, "'conv1.weight' is not finite"),
    "of a norm": (SGD | {"value": 1e200, "clip_norm": 1.0, "dtype": "float64"}, "norm of all gradients is not finite"),
    "of a moment": ({"value": 1e25, "optimizer": "adam"}, "state 'second' would not be finite after the update"),
    "of the update": (SGD | {"value": 1e38, "learning_rate": 5.0}, "new values would not be finite"),
}
APART_OVERFLOWS = {
    f"{kind} {name}": ({"value": 1e25, "optimizer": "adam", "strategy": name}, "would not be finite after the update")
    for kind, name in (("moment", "average:2"), ("moment", "async"), ("moment", "softsync:1"))
}
JOBS: dict[Layout, dict[str, tuple[str, dict[str, Any]]]] = {
    ALONE: {
        **{f"huge {name}": ("train_on", HUGE_SAMPLE | options) for name, options in {**SYNCHRONOUS, **APART}.items()},
        **{f"overflow {name}": ("poke", OVERFLOWS[name][0]) for name in ("of a norm", "of a moment", "of the update")},
    },
    TOGETHER: {
        **{f"huge {name}": ("train_on", HUGE_SAMPLE | options) for name, options in {**SYNCHRONOUS, **APART}.items()},
        **{f"overflow {name}": ("poke", o) for name, (o, _) in OVERFLOWS.items() if "compression" not in o},
        **{f"overflow {name}": ("poke", o) for name, (o, _) in APART_OVERFLOWS.items()},
    },
    MACHINES: {
        "huge sync": ("train_on", HUGE_SAMPLE),
        "huge shards": ("train_on", HUGE_SAMPLE | {"shards": 6}),
        **{f"large {name}": ("train_on", LARGE_SAMPLE | options) for name, options in FP16.items()},
        "large none": ("train_on", LARGE_SAMPLE),
        **{f"overflow {name}": ("poke", o) for name, (o, _) in OVERFLOWS.items()},
    },
}


@pytest.fixture(scope="session")
def results(run_once: Callable[..., list[Any]], job_folder: Path) -> Callable[[Layout, str, str], list[Any]]:
    """``results(layout, name, on_nan)``: what a job gave on every rank; all jobs of a layout run in one start."""

    def of(layout: Layout, name: str, on_nan: str) -> list[Any]:
        jobs = {}
        for job, (function, options) in JOBS[layout].items():
            if "torch" in job:
                pytest.importorskip("torch")
            for place, choice in enumerate(("stop", "skip")):
                folder = job_folder / "finite" / f"{layout} {job}" / str(place)
                jobs[f"{job} {choice}"] = (function, options | {"on_nan": choice, "folder": str(folder)})
        by_rank = run_once(
            f"finite {layout}",
            (CHECKS, "run_all"),
            layout.num_ranks,
            communicator=layout.communicator,
            environment={"RINGLET_RANKS_PER_NODE": str(layout.ranks_per_node)} if layout.ranks_per_node else {},
            arguments={"jobs": jobs},
            timeout=180,
        )
        return [result[f"{name} {on_nan}"] for result in by_rank]

    return of


def cases(layout: Layout, kind: str) -> list[Any]:
    return [pytest.param(layout, name, id=f"{layout.num_ranks} {name}") for name in JOBS[layout] if kind in name]


def assert_stopped(found: list[Any], words: str) -> None:
    """All ranks stopped with the same words; nothing that was not finite was applied or saved."""
    assert {result["message"] for result in found} == {found[0]["message"]}
    assert words in found[0]["message"]
    assert "(update 3)" in found[0]["message"]
    assert all(result["finite"] and result["equal"] for result in found)
    assert all(finite for _, finite in found[0]["saved"])


def assert_skipped(found: list[Any]) -> None:
    """Training went on; all is finite."""
    assert all(result["message"] == "" and result["finite"] and result["equal"] for result in found)
    assert sum(result["skipped"] for result in found) in (1, len(found))
    steps, finite = zip(*found[0]["saved"], strict=True)
    assert steps == (1, 2, 3, 4, 5, 6)
    assert all(finite)


@pytest.mark.parametrize(("layout", "name"), [case for layout in JOBS for case in cases(layout, "huge")])
def test_a_running_statistic_that_is_not_finite_changes_nothing(results: Any, layout: Layout, name: str) -> None:
    found = results(layout, name, "stop")
    assert_stopped(found, "the running statistic 'norm1.running_var' is not finite")
    if "shards" in name or " of passes" in name or layout.num_ranks > 1:
        assert "in shard 0 of" in found[0]["message"]
    if name.removeprefix("huge ") in SYNCHRONOUS:
        assert all(result["unchanged"] for result in found)
        assert [step for step, _ in found[0]["saved"]] == [1, 2]
    skipped = results(layout, name, "skip")
    assert_skipped(skipped)
    if name.removeprefix("huge ") in SYNCHRONOUS:
        assert all(result["unchanged"] for result in skipped)


@pytest.mark.parametrize("name", [f"large {name}" for name in FP16])
def test_gradients_that_overflow_in_16_bits_change_nothing(results: Any, name: str) -> None:
    found, skipped = results(MACHINES, name, "stop"), results(MACHINES, name, "skip")
    assert_stopped(found, "'conv1.weight', with compression fp16 (largest value 65504), is not finite")
    assert_skipped(skipped)
    assert all(result["unchanged"] for result in (*found, *skipped))


def test_the_same_gradients_are_applied_without_compression(results: Any) -> None:
    for result in results(MACHINES, "large none", "stop"):
        assert (result["message"], result["unchanged"], result["finite"]) == ("", False, True)


@pytest.mark.parametrize(("layout", "name"), [case for layout in JOBS for case in cases(layout, "overflow")])
def test_an_overflow_of_what_was_finite_changes_nothing(results: Any, layout: Layout, name: str) -> None:
    words = (OVERFLOWS | APART_OVERFLOWS)[name.removeprefix("overflow ")][1]
    found, skipped = results(layout, name, "stop"), results(layout, name, "skip")
    assert_stopped(found, words)
    assert_skipped(skipped)
    if name.removeprefix("overflow ") in OVERFLOWS:
        assert all(result["unchanged"] for result in (*found, *skipped))
