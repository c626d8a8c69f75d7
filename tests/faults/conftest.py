"""Real, supervised runs with faults on purpose; see ``supervised``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))
sys.path.insert(0, str(Path(__file__).parent))

import launched
import supervised

begin = launched.begin


@pytest.fixture
def runs(tmp_path: Path, begin: launched.Begin) -> Iterator[supervised.Runs]:
    """Starts runs; afterwards no process and no folder of a job may be left."""
    made = supervised.Runs(tmp_path, begin)
    yield made
    assert made.leftovers() == []


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> supervised.Undisturbed:
    """Digests of runs to which nothing happens, made when first asked for."""
    return supervised.Undisturbed(tmp_path_factory.mktemp("undisturbed"))
