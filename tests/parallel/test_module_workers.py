"""A PyTorch module on several workers: the same bits as on one, and after a worker was killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringlet
from ringlet.comm.environments import VARIABLES

pytest.importorskip("torch", reason="a module needs PyTorch: pip install 'ringlet[torch]'")
if importlib.util.find_spec("keras") is None:
    pytest.skip("a model needs Keras: pip install 'ringlet[keras]'", allow_module_level=True)
KERAS = {"KERAS_BACKEND": "torch"}
CHECKS = Path(__file__).with_name("module_checks.py")
JOBS: dict[str, dict[str, Any]] = {
    "own copies": {},
    "shared copy": {"shared_copy": True},
    "average": {"strategy": "average:2", "shards": None},
}
pytestmark = pytest.mark.xdist_group("module_workers")


@pytest.fixture(scope="module")
def alone(run_once: Callable[..., list[Any]]) -> dict[str, Any]:
    """What one worker gets with two shards."""
    job = {"jobs": {"own copies": {}}}
    found: dict[str, Any] = run_once(
        "module_alone", (CHECKS, "run_all"), 1, communicator="single", arguments=job, environment=KERAS
    )[0]
    return found


@pytest.fixture(scope="module")
def together(run_once: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """What two workers get, by rank."""
    return run_once("module_together", (CHECKS, "run_all"), 2, arguments={"jobs": JOBS}, environment=KERAS)


@pytest.mark.parametrize("job", ["own copies", "shared copy"])
def test_two_workers_have_the_bits_of_one(alone: dict[str, Any], together: list[dict[str, Any]], job: str) -> None:
    assert [rank[job] for rank in together] == [alone["own copies"]] * 2


def test_two_workers_with_a_keras_model_have_the_bits_of_one(
    alone: dict[str, Any], together: list[dict[str, Any]]
) -> None:
    assert [rank["keras"] for rank in together] == [alone["keras"]] * 2


def test_workers_that_average_end_with_the_same_network(together: list[dict[str, Any]]) -> None:
    first, second = (rank["average"] for rank in together)
    assert first == second


def test_workers_with_different_modules_are_refused(run_once: Callable[..., list[Any]]) -> None:
    said = run_once("module_differ", (CHECKS, "differ"), 2)
    assert all("rank 1" in text and "has tensor 'head.0.weight' 'parameter (10, 12)" in text for text in said)


def test_a_killed_worker_changes_nothing(alone: dict[str, Any], tmp_path: Path) -> None:
    """``ringlet run`` starts both again; they resume from the checkpoint of the sixth step."""
    fault = f"kill@rank=1,step=8,phase=update,once={tmp_path / 'killed'}"
    ours = {
        "RINGLET_FAULT": fault,
        "RINGLET_CACHE": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "RINGLET_RESTART_DELAY": "0",
    }
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | ours
    environment["PYTHONPATH"] = str(Path(ringlet.__file__).parents[1])
    command = [sys.executable, "-m", "ringlet", "run", "-n", "2", "--restarts", "1", str(CHECKS), str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert (tmp_path / "killed").exists()
    assert json.loads((tmp_path / "digests.json").read_text(encoding="utf-8")) == alone["own copies"]["tensors"]
