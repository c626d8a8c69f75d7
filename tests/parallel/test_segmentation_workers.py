"""Masks are learned alike on any number of workers: figures over all ranks, and pictures by one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import run_ranks

CHECKS = Path(__file__).with_name("segmentation_checks.py")
ENVIRONMENT = {"RINGLET_TUNING": "off"}


def run(function: str, num_ranks: int, **arguments: Any) -> dict[str, Any]:
    """What the ranks say, which must be the same on all."""
    kind = "single" if num_ranks == 1 else "node"
    results = run_ranks(
        (CHECKS, function), num_ranks, communicator=kind, arguments=arguments, environment=ENVIRONMENT, timeout=120
    )
    assert all(result == results[0] for result in results[1:])
    return dict(results[0])


def test_with_shards_figures_and_pictures_are_the_same_to_the_bit(tmp_path: Path) -> None:
    alone = run("learn", 1, folder=str(tmp_path / "1"), shards=3)
    assert list(alone["pictures"]) == ["epoch-0001.png", "epoch-0002.png"]
    for num_ranks in (2, 3):
        assert run("learn", num_ranks, folder=str(tmp_path / str(num_ranks)), shards=3) == alone


def test_figures_weigh_by_samples_whatever_each_rank_has() -> None:
    """Twelve test samples over one, two and three ranks in batches that do not come out even."""
    alone = run("evaluate", 1, global_batch_size=5)
    for num_ranks in (2, 3):
        several = run("evaluate", num_ranks, global_batch_size=5)
        assert several == pytest.approx(alone, rel=1e-6)
        assert several["accuracy"] == alone["accuracy"]
