"""Real, supervised runs with faults on purpose; see ``supervised``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))
sys.path.insert(0, str(Path(__file__).parent))

import launched
import supervised
import terminals

begin = launched.begin
terminal = terminals.terminal
own_memory = terminals.own_memory
begin_for_all = pytest.fixture(launched.beginning, scope="session")


@pytest.fixture
def runs(tmp_path: Path, begin: launched.Begin) -> Iterator[supervised.Runs]:
    """Starts runs; afterwards no process and no folder of a job may be left."""
    made = supervised.Runs(tmp_path, begin)
    yield made
    assert made.leftovers() == []


@pytest.fixture(scope="session")
def runs_for_all(
    tmp_path_factory: pytest.TempPathFactory, begin_for_all: launched.Begin
) -> Iterator[Callable[[str], supervised.Runs]]:
    """``runs_for_all(name)``: starts runs below a folder of that name, whose results serve several tests."""
    made: list[supervised.Runs] = []

    def make(name: str) -> supervised.Runs:
        made.append(supervised.Runs(tmp_path_factory.mktemp(name), begin_for_all))
        return made[-1]

    yield make
    assert [runs.leftovers() for runs in made] == [[]] * len(made)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> supervised.Undisturbed:
    """Digests of runs to which nothing happens, made when first asked for."""
    return supervised.Undisturbed(tmp_path_factory.mktemp("undisturbed"))
