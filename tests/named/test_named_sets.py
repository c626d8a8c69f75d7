"""Process sets, objects and timelines on three real ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks_sets import CHECKS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("communicator", "ranks_per_node"), [("node", ""), ("mpi", "2")])
def test_sets_and_objects_keep_their_promises(
    communicator: str, ranks_per_node: str, check: str, run_once: Callable[..., list[Any]], job_folder: Path
) -> None:
    folder = job_folder / f"timelines-{communicator}"
    folder.mkdir(exist_ok=True)
    target = (Path(__file__).with_name("checks_sets.py"), "run_all")
    environment = {"RINGLET_RANKS_PER_NODE": ranks_per_node}
    options = {"communicator": communicator, "environment": environment, "arguments": {"folder": str(folder)}}
    results = run_once(f"named-sets-{communicator}", target, 3, timeout=120, **options)
    failures = [f"rank {rank}: {result[check]}" for rank, result in enumerate(results) if result[check] is not None]
    assert not failures, "\n".join(failures)
