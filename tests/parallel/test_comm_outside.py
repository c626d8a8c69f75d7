"""A collective is added from outside, by one description, and works over every communicator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("outside_collectives.py")


@pytest.mark.parametrize(
    ("communicator", "num_ranks", "ranks_per_node"),
    [("single", 1, 0), ("node", 3, 0), ("mpi", 2, 1), ("mpi", 3, 2), ("torch", 2, 0), ("torch", 3, 2)],
)
def test_a_collective_of_another_package_works_everywhere(
    communicator: str, num_ranks: int, ranks_per_node: int
) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": str(ranks_per_node)} if ranks_per_node else {}
    results = run_ranks((CHECKS, "check"), num_ranks, communicator=communicator, environment=environment, timeout=120)
    assert results == [True] * num_ranks


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "register(Collective('allreduce', bind=lambda: (), composed=len))",
            "there is a collective 'allreduce' already",
        ),
        ("Collective('scan', bind=lambda: (), single=len, node=len)", "needs functions for single, node and wired"),
        ("SingleCommunicator().call('scan')", "'scan' cannot be called: expected one of allgather, allreduce"),
    ],
)
def test_what_is_no_collective_is_refused(lines: str, words: str) -> None:
    imports = (
        "from ringlet.comm.collective import Collective, register\nfrom ringlet.comm.single import SingleCommunicator\n"
    )
    done = subprocess.run([sys.executable, "-c", imports + lines], capture_output=True, text=True, check=False)
    assert words in done.stderr
