"""Tests on real ranks. Jobs of the contract suite run once and serve many tests, also those of other test processes."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests and checks here import each other

from harness import JobError, run_ranks


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jobs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def run_once(job_folder: Path) -> Callable[..., list[Any]]:
    """``run_once(name, target, num_ranks, **options)``: the results of that job, which is run by the first who asks."""
    known: dict[str, dict[str, Any]] = {}

    def run(name: str, target: tuple[Path, str], num_ranks: int, **options: Any) -> list[Any]:
        if name not in known:
            known[name] = _run_or_read(job_folder / name, target, num_ranks, options)
        if known[name]["error"] is not None:
            raise JobError(known[name]["error"])
        return list(known[name]["results"])

    return run


def _run_or_read(path: Path, target: tuple[Path, str], num_ranks: int, options: dict[str, Any]) -> dict[str, Any]:
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            try:
                text = json.dumps({"error": None, "results": run_ranks(target, num_ranks, **options)})
            except JobError as error:
                text = json.dumps({"error": str(error), "results": None})
            file.write(text)
        return dict(json.loads(text))
