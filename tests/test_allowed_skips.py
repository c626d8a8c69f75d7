"""In continuous integration a test that skips itself is a failure, unless a list says why nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def run_without_programs(folder: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Run a test that needs shellcheck where there is only a shell."""
    (folder / "bash").symlink_to(shutil.which("bash") or "")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "shell"]
    return subprocess.run(
        [*command, str(TESTS / "deploy" / "test_deploy_files.py")],
        env={**os.environ, "PATH": str(folder), "CI": ci},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_missing_program_fails_where_ci_is_set(tmp_path: Path) -> None:
    done = run_without_programs(tmp_path, "true")
    assert done.returncode == 1, done.stdout
    assert "shellcheck is not installed" in done.stdout
    assert "unless tests/allowed_skips.toml has them" in done.stdout


def test_a_missing_program_is_a_skip_elsewhere(tmp_path: Path) -> None:
    done = run_without_programs(tmp_path, "")
    assert done.returncode == 0, done.stdout
    assert "shellcheck is not installed" in done.stdout


@pytest.mark.parametrize("rule", tomllib.loads((TESTS / "allowed_skips.toml").read_text())["skip"], ids=str)
def test_every_rule_says_why_nothing_is_lost(rule: dict[str, str]) -> None:
    assert rule.keys() == {"tests", "reason", "why"}
    assert all(rule.values())
    assert list(TESTS.parent.glob(rule["tests"].partition("::")[0])), "it names no file"
