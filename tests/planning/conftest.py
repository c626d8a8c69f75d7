"""What the tests of plans share: small networks, machines and links, and a way to call ``ringlet``."""

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


@pytest.fixture
def ringlet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Call the command line in an empty folder; gives exit code and both outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
