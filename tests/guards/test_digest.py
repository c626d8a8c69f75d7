"""A replica that is not like the others is found within the interval, and named on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import run_ranks
from hypothesis import given
from hypothesis import strategies as st

from ringlet.comm.single import SingleCommunicator
from ringlet.errors import CommunicationError, ConfigError
from ringlet.guards.agreement import BLOCK_BYTES, ReplicaError, ReplicaGuard, block_digests

CHECKS = Path(__file__).with_name("digest_checks.py")


def train(num_ranks: int, machine: str, flips: dict[str, list[int]], what: str, **options: Any) -> dict[str, Any]:
    results = run_ranks(
        (CHECKS, "train"),
        num_ranks,
        communicator="mpi" if machine else "node",
        arguments={"flips": flips, "what": what, **options},
        environment={"RINGLET_RANKS_PER_NODE": machine} if machine else None,
    )
    assert all(result == results[0] for result in results)
    return dict(results[0])


@pytest.mark.parametrize(("num_ranks", "machine"), [(3, ""), (3, "2"), (2, "1")])
def test_equal_replicas_pass(num_ranks: int, machine: str) -> None:
    assert train(num_ranks, machine, {}, "parameters") == {"step": 12, "message": ""}


@pytest.mark.parametrize("bit", [0, 31])
@pytest.mark.parametrize("element", [0, 131_071, 169_999])
def test_a_flipped_bit_of_a_machines_parameters_is_found_and_named(element: int, bit: int) -> None:
    result = train(3, "1", {"2": [element, bit]}, "parameters")
    assert result["step"] == 5
    block = element // (BLOCK_BYTES // 4)
    ranges = ["0 to 65,535 ('conv.weight')", "65,536 to 131,071 ('conv.weight', 'dense.weight')"]
    ranges.append("131,072 to 169,999 ('dense.weight', 'dense.bias')")
    place = f"parameters {ranges[block]} of machine 2 (rank 2) are not those of machine 0"
    assert result["message"].startswith(f"replicas differ after step 5: {place}.")


def test_the_majority_is_right_even_against_the_first() -> None:
    message = train(3, "1", {"0": [7, 3]}, "parameters")["message"]
    assert "of machine 0 (rank 0) are not those of machine 1" in message


def test_machines_of_different_size_compare_what_belongs_together() -> None:
    message = train(3, "2", {"2": [150_000, 9]}, "parameters")["message"]
    assert "of machine 1 (rank 2) are not those of machine 0" in message
    assert "parameters 131,072 to 169,999" in message


@pytest.mark.parametrize(("num_ranks", "machine"), [(3, ""), (3, "2")])
def test_running_statistics_of_a_rank_that_differ_are_named(num_ranks: int, machine: str) -> None:
    result = train(num_ranks, machine, {"1": [32, 17]}, "statistics")
    assert result["step"] == 5
    assert "the running statistics of rank 1 are not those of rank 0" in result["message"]


def test_every_zero_means_never() -> None:
    assert train(2, "", {"1": [0, 0]}, "statistics", every=0)["message"] == ""


def test_a_process_alone_has_nothing_to_compare() -> None:
    guard = ReplicaGuard(SingleCommunicator(), 1)
    guard.after_update(1, np.ones(3), np.ones(0))
    assert issubclass(ReplicaError, CommunicationError)


def test_an_interval_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="every -1 steps"):
        ReplicaGuard(SingleCommunicator(), -1)


@given(st.binary(max_size=100), st.integers(1, 40), st.data())
def test_every_flipped_bit_changes_the_digest_of_its_block_alone(data: bytes, width: int, draw: st.DataObject) -> None:
    block_bytes = 8 * width
    values = np.frombuffer(data, np.uint8).copy()
    blocks = range(-(-len(values) // block_bytes))
    before = block_digests(values, blocks, block_bytes)
    assert len(before) == len(blocks)
    if not len(values):
        return
    place, bit = draw.draw(st.integers(0, len(values) - 1)), draw.draw(st.integers(0, 7))
    values[place] ^= 1 << bit
    changed = (block_digests(values, blocks, block_bytes) != before).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [place // block_bytes]


def test_digests_do_not_depend_on_who_digests_which_block() -> None:
    values = np.random.default_rng(4).normal(size=1000).astype(np.float32)
    together = block_digests(values, range(4), 1024)
    apart = [block_digests(values, range(start, start + 1), 1024) for start in range(4)]
    assert (np.concatenate(apart) == together).all()
