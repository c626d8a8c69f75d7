"""``scripts/arm64.sh``: what it names exists, and mistakes are explained. That it works is shown by running it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import packages
import pytest

ROOT = packages.REPOSITORY
SCRIPT = ROOT / "scripts" / "arm64.sh"
TEXT = SCRIPT.read_text(encoding="utf-8")


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def test_the_script_is_sound() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    checked = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    done = call("kernel")
    assert done.returncode == 1
    known = re.search(r"unknown step 'kernel'\. Expected (.*)\n", done.stderr)
    assert known
    steps = re.split(r", | or ", known[1])
    assert f"set -- {' '.join(steps)}\n" in TEXT
    assert all(f"\n{step}() {{" in TEXT for step in steps)


@pytest.mark.skipif(os.uname().machine == "aarch64", reason="nothing is emulated here")
def test_missing_programs_are_named_where_they_cannot_be_installed(tmp_path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cmake", "dirname", "mkdir", "ninja", "uname"):
        (programs / name).symlink_to(shutil.which(name) or "/bin/false")
    (programs / "id").write_text("#!/bin/sh\necho 1000\n")
    (programs / "id").chmod(0o755)
    done = call("prepare", PATH=str(programs), RINGLET_ARM64_FOLDER=str(tmp_path / "arm64"))
    assert done.returncode == 1
    assert "missing: g++-aarch64-linux-gnu qemu-user. Install them" in done.stderr


def test_tests_and_modules_that_it_runs_exist() -> None:
    tests = re.findall(r"tests/[\w/.]+", TEXT)
    assert len(tests) > 4
    assert [name for name in tests if not (ROOT / name).exists()] == []
    modules = re.findall(r"-m benchmarks\.(\w+)", TEXT)
    assert modules == ["litmus"]
    assert (ROOT / "benchmarks" / "litmus.py").is_file()
    assert (ROOT / "cmake" / "aarch64-linux-gnu.cmake").is_file()


def test_what_tests_need_is_what_the_project_says() -> None:
    """The script lists the few packages of the extra ``dev`` that the kernels' tests use."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^TEST_NEEDS=\((.*)\)$", TEXT, re.MULTILINE)
    for requirement in re.findall(r"'([^']+)'", listed):
        assert f'"{requirement}"' in project, requirement
