"""Elastic programs for Horovod resume from their last commit when all ranks are started again, without a change."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ringlet

HERE = Path(__file__).parent
QUICK = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONPATH": os.pathsep.join([str(Path(ringlet.__file__).parents[1]), str(HERE.with_name("quick_imports"))]),
    "RINGLET_RESTART_DELAY": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


def records(begin: Any, framework: str, doomed: int, *options: str, **environment: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "ringlet", "run", "--horovod", *options, str(HERE / "horovod_elastic_program.py")]
    done = begin([*command, framework, str(doomed)], QUICK | environment).finish()
    assert done.returncode == 0, done.stderr
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["rank"])


@pytest.mark.parametrize(("framework", "doomed"), [("torch", 0), ("tensorflow", 1)])
def test_a_killed_rank_costs_the_steps_since_the_last_commit(begin: Any, framework: str, doomed: int) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    killed = records(begin, framework, doomed, "-n", "2", "--restarts", "2")
    whole = records(begin, framework, -1, "-n", "2")
    for record, expected in zip(killed, whole, strict=True):
        assert record["begins"] in ([6], [7])  # the other rank may have committed
        assert record["seen"] == expected["seen"] == list(range(12))
        assert record["weights"] == expected["weights"] == whole[0]["weights"]


def test_commits_in_a_folder_of_ones_own_serve_later_jobs(begin: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = {"RINGLET_COMMITS": str(tmp_path / "commits")}
    first = records(begin, "torch", -1, "-n", "1", **folder)
    again = records(begin, "torch", -1, "-n", "1", **folder)
    assert (first[0]["begins"], again[0]["begins"]) == ([0], [12])
    assert again[0]["weights"] == first[0]["weights"]
