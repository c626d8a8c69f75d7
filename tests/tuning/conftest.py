"""What tests of tuning share: a folder of their own, ``ringlet`` in this process, and jobs in the background."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringlet.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

import launched

begin = launched.begin


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of its own and no options in the environment."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def ringlet(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call the command line; gives exit code and both outputs."""

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = main(list(arguments))
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
