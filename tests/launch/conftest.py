"""What tests of real jobs share; see ``launched``."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import launched

begin = launched.begin
LAUNCHERS = ("local", "mpi")
Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launch(begin: launched.Begin) -> Launch:
    """Runs ``ringlet run`` with these words to its end."""

    def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ringlet", "run", *map(str, words)]
        return begin(command, environment).finish()

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Writes a script."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> str:
    if request.param == "mpi" and find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    return str(request.param)
