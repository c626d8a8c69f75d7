"""Ranks that do not mean the same run are refused, all of them, with the difference named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import run_ranks

from ringlet import kernels
from ringlet.comm.single import SingleCommunicator
from ringlet.data.source import ArraySource
from ringlet.errors import EXIT_USAGE, CommunicationError
from ringlet.guards.agreement import HandshakeError, check_same, dataset_fingerprint, software_facts

CHECKS = Path(__file__).with_name("handshake_checks.py")
HOST = os.uname().nodename


def compare(num_ranks: int, changes: dict[str, Any], communicator: str = "node") -> dict[str, Any]:
    results = run_ranks((CHECKS, "compare"), num_ranks, communicator=communicator, arguments={"changes": changes})
    assert all(result == results[0] for result in results)
    return dict(results[0])


@pytest.mark.parametrize("communicator", ["node", "mpi"])
def test_ranks_that_agree_pass(communicator: str) -> None:
    assert compare(3, {}, communicator)["message"] == ""


@pytest.mark.parametrize("communicator", ["node", "mpi"])
def test_the_rank_host_key_and_both_values_are_named_on_all_ranks(communicator: str) -> None:
    result = compare(3, {"2": {"version": "1.2.4"}}, communicator)
    assert f"rank 2 on {HOST} has version '1.2.4', rank 0 on {HOST} has '1.2.3'" in result["message"]
    assert "rank 1" not in result["message"]
    assert result["exit_code"] == EXIT_USAGE


def test_what_only_one_side_has_is_a_difference() -> None:
    message = compare(2, {"1": {"dtype": None, "colour": "red"}})["message"]
    assert f"rank 1 on {HOST} has dtype nothing, rank 0 on {HOST} has 'float32'" in message
    assert f"rank 1 on {HOST} has colour 'red', rank 0 on {HOST} has nothing" in message


def test_many_differences_are_summed_up() -> None:
    changes = {str(rank): {"version": "0", "configuration": "x" * 1000, "dtype": "float64"} for rank in (1, 2, 3)}
    message = compare(4, changes)["message"]
    assert message.count(" has version '0'") == 2
    assert "and 4 more differences" in message
    assert "x" * 161 not in message


def test_a_rank_alone_agrees_with_itself() -> None:
    check_same(SingleCommunicator(), {"version": "1"})
    assert issubclass(HandshakeError, CommunicationError)


def test_software_facts_name_version_and_instruction_set() -> None:
    assert software_facts(kernels.load("reference")) | {"version": "", "NumPy": ""} == {
        "version": "", "byte order": "little", "kernels": "reference", "NumPy": "",
    }  # fmt: skip
    if "compiled" in kernels.available():
        facts = software_facts(kernels.load("compiled"))
        assert facts["kernels"] == "compiled"
        assert facts["instruction set"] == str(kernels.load("compiled").instruction_set())


def source(num_samples: int = 100, **changes: Any) -> ArraySource:
    images = (np.arange(num_samples * 4) % 251).astype(changes.get("dtype", np.uint8)).reshape(num_samples, 1, 2, 2)
    return ArraySource(images, np.arange(num_samples) % 5, changes.get("num_classes", 5))


def test_a_fingerprint_tells_data_apart() -> None:
    other_label = source()
    other_label._labels[99] = 0
    variants = [source(), source(99), source(dtype=np.float32), source(num_classes=6), other_label]
    assert len({dataset_fingerprint(variant) for variant in variants}) == len(variants)
    assert dataset_fingerprint(source()) == dataset_fingerprint(source())


@pytest.mark.parametrize("num_samples", [0, 1, 3])
def test_small_sources_have_fingerprints_too(num_samples: int) -> None:
    assert len(dataset_fingerprint(source(num_samples))) == 32
