"""What the training tests share: a quiet folder of their own and small, repeatable runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringlet import RunConfig, Trainer

SMALL = {"model": "simplecnn", "num_epochs": 2, "steps_per_epoch": 4, "batch_size": 32, "kernels": "reference"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.delenv("RINGLET_KERNELS", raising=False)
    return folder


@pytest.fixture
def small_config() -> Callable[..., RunConfig]:
    """A configuration of a run that takes a fraction of a second."""

    def make(**changes: Any) -> RunConfig:
        return RunConfig(**{**SMALL, **changes})

    return make


@pytest.fixture
def small_trainer() -> Callable[..., Trainer]:
    """A trainer for such a run."""

    def make(**changes: Any) -> Trainer:
        return Trainer(**{**SMALL, **changes})

    return make
