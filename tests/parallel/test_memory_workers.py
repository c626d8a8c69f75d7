"""Workers agree on whether a run fits into memory: also those of different machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("finite_checks.py")


@pytest.mark.parametrize(("communicator", "num_ranks", "per_machine"), [("node", 2, ""), ("mpi", 3, "2")])
def test_all_workers_refuse_a_run_that_does_not_fit_on_one_machine(
    communicator: str, num_ranks: int, per_machine: str
) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": per_machine} if per_machine else {}
    found = run_ranks((CHECKS, "too_little_memory"), num_ranks, communicator=communicator, environment=environment)
    assert len(set(found)) == 1
    assert "1 KiB are available" in found[0]
