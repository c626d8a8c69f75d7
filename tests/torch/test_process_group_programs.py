"""PyTorch's ways to split models, and libraries above it, over the backend "ringlet" on two ranks of each launcher."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from launching import run_script

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("process_group_script.py")
PARALLELISM = (
    "fully_sharded_1",
    "fully_sharded_2",
    "hybrid_sharded",
    "distributed_tensors",
    "distributed_checkpoints",
    "pipelined",
    "sharded_optimizer",
    "compiled",
)
LIBRARIES = ("with_accelerate", "with_fabric", "with_lightning")

every_launcher = pytest.mark.parametrize(
    "launcher",
    [pytest.param(name, marks=pytest.mark.xdist_group(f"programs-{name}")) for name in ("torchrun", "ringlet")],
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[Any]]:
    """``results(launcher, check)``: what it gave on each rank; all checks share one start."""
    jobs: dict[str, tuple[Path, CompletedProcess[str]]] = {}

    def of(launcher: str, check: str) -> list[Any]:
        if launcher not in jobs:
            folder = tmp_path_factory.mktemp(launcher)
            jobs[launcher] = folder, run_script(launcher, SCRIPT, folder)
        folder, ended = jobs[launcher]
        assert ended.returncode == 0, ended.stderr
        found = [json.loads((folder / f"{rank}.json").read_text())[check] for rank in range(2)]
        if "missing" in found[0]:
            pytest.skip(found[0]["missing"])
        return [entry["value"] for entry in found]

    return of


@every_launcher
@pytest.mark.parametrize("check", PARALLELISM)
def test_every_way_to_split_a_model_gives_the_weights_of_one_process(launcher: str, check: str, results: Any) -> None:
    results(launcher, check)


@every_launcher
@pytest.mark.parametrize("check", LIBRARIES)
def test_libraries_train_the_same_model_on_both_ranks(launcher: str, check: str, results: Any) -> None:
    first, second = results(launcher, check)
    assert first["digest"] == second["digest"]
    assert first["losses"] == second["losses"]
    assert first["losses"][0] > first["losses"][-1]
    assert (first["processes"], first["backend"]) == (2, "ringlet")
