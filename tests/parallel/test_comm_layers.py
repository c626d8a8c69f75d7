"""Layouts of machines that a single machine does not show by itself, and memory that cannot be shared."""

from __future__ import annotations

from pathlib import Path

from harness import run_ranks

CHECKS = Path(__file__).with_name("layer_checks.py")


def test_ranks_may_be_dealt_to_machines_in_turn() -> None:
    results = run_ranks((CHECKS, "machines_in_turn"), 3, communicator="mpi", timeout=120)
    assert results == [[[2, 1], [0, 0, 2]], [[2, 1], [1, 0, 2]], [[2, 1], [0, 1, 1]]]


def test_large_messages_travel_in_pieces() -> None:
    environment = {"RINGLET_RANKS_PER_NODE": "1"}
    results = run_ranks((CHECKS, "small_pieces"), 3, communicator="mpi", environment=environment, timeout=120)
    assert results == [True] * 3


def test_a_machine_that_cannot_share_memory_is_so_many_machines() -> None:
    results = run_ranks((CHECKS, "without_shared_memory"), 4, communicator="mpi", timeout=120)
    warning = "the ranks of this machine do not share memory: this rank lives elsewhere"
    assert results == [[[1, 1, 1, 1], []]] * 3 + [[[1, 1, 1, 1], [warning]]]


def test_a_part_of_the_mpi_world_is_a_communicator() -> None:
    results = run_ranks((CHECKS, "part_of_the_world"), 3, communicator="mpi")
    assert results == [[1, 2, 2, 2], [0, 1, 1, 1], [0, 2, 2, 2]]


def test_a_program_may_use_torch_distributed_itself() -> None:
    results = run_ranks((CHECKS, "beside_the_users_own_group"), 3, communicator="torch", timeout=120)
    assert results == [[3, 3, 4], [3, 3], [3, 3, 4]]
