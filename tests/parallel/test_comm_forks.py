"""Processes that are forked from ranks: they end as they like, and the ranks do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

HERE = Path(__file__).parent
KINDS = ("ends", "leaves", "closes", "forgets", "calls", "from a thread", "multiprocessing", "subprocess")


@pytest.mark.parametrize(
    ("communicator", "ranks_per_node"),
    [("node", None), ("mpi", None), ("mpi", "1"), ("torch", None), ("torch", "1")],
)
def test_ranks_go_on_after_their_children_have_ended(communicator: str, ranks_per_node: str | None) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": ranks_per_node} if ranks_per_node else {}
    target = (HERE / "fork_checks.py", "children_of_all_kinds")
    for result in run_ranks(target, 2, communicator=communicator, environment=environment, timeout=90):
        assert result["codes"] == {**dict.fromkeys(KINDS, 0), "aborts": 9}
        assert set(result["totals"].values()) == {3.0}


def test_without_compiled_kernels_too() -> None:
    environment = {"RINGLET_KERNELS": "reference"}
    for result in run_ranks((HERE / "fork_checks.py", "children_of_all_kinds"), 2, environment=environment):
        assert set(result["totals"].values()) == {3.0}


def test_a_child_neither_leaves_for_its_rank_nor_takes_its_lock() -> None:
    for result in run_ranks((HERE / "fork_checks.py", "stalls_and_windows"), 2):
        assert result == {"codes": [0, 0], "present": ["here", "here"], "count": 2}
