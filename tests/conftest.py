"""What all tests share: where the real data sets are, and thread limits that fit a shared machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def _data_root() -> Path | None:
    candidates = [os.environ.get("RINGLET_TEST_DATA"), REPOSITORY.parent / "shared" / "data"]
    return next((Path(path) for path in candidates if path and Path(path).is_dir()), None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets (mnist, cifar-10-batches-bin, carvana, nuclei); the test is skipped without it."""
    root = _data_root()
    if root is None:
        pytest.skip("needs real data sets: set RINGLET_TEST_DATA to a folder with mnist/, cifar-10-batches-bin/, …")
    return root
