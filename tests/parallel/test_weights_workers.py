"""Weights of classes and samples, and metrics of several sums, are the same bits on any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("weights_checks.py")


def run(num_ranks: int, **arguments: Any) -> dict[str, Any]:
    """What the ranks say, which must be the same on all."""
    kind = "single" if num_ranks == 1 else "node"
    environment = {"RINGLET_TUNING": "off"}
    results = run_ranks(
        (CHECKS, "learn"), num_ranks, communicator=kind, arguments=arguments, environment=environment, timeout=120
    )
    assert all(result == results[0] for result in results[1:])
    return dict(results[0])


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_with_shards_two_ranks_learn_the_same_bits_as_one(task: str) -> None:
    alone = run(1, task=task, shards=2)
    assert len(alone["epochs"]) == 2
    assert run(2, task=task, shards=2) == alone
