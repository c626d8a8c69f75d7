"""What the command-line tests share: an empty folder and a way to call ``ringlet`` in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringlet.cli.main import main


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
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("RINGLET_KERNELS", raising=False)
    return folder


@pytest.fixture
def ringlet(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call the command line; gives exit code and both outputs."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
