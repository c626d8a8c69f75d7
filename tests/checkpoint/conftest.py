"""Stores in temporary directories."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ringlet.checkpoint import CheckpointStore

sys.path.insert(0, str(Path(__file__).parent))  # tests here share their samples

from checkpoint_samples import make_checkpoint


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where there is one: waiting for a disk at every write would be most of these tests."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def seed() -> int:
    """Another one every time, told when the test fails; RINGLET_TEST_SEED repeats one."""
    chosen = int(os.environ.get("RINGLET_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"RINGLET_TEST_SEED={chosen}\n")
    return chosen


@pytest.fixture
def said() -> list[str]:
    """What the store of the test has said."""
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", say=said.append)


@pytest.fixture
def filled(store: CheckpointStore) -> Callable[..., CheckpointStore]:
    """Fill the store with checkpoints of the given steps."""

    def fill(*steps: int) -> CheckpointStore:
        for step in steps:
            store.write(make_checkpoint(step))
        return store

    return fill
