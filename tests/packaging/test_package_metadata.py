"""One version, and extras that can be had."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import packages
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import ringlet

ROOT = packages.REPOSITORY
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
WITH_TORCH = {"dev", "torch"}
"""Extras that bring torch: by its name, and for tests of programs that need it; `make` installs a pinned one first."""
NAMED_EXTRAS = re.compile(r"(?:ringlet|whl\)|\.)\[([a-z][a-z,]*)\]")


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/ringlet/__init__.py"
    assert str(Version(ringlet.__version__)) == ringlet.__version__
    assert f"\n## [{ringlet.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_asks_for_can_be_had(extra: str) -> None:
    """With a lower bound, and met by what is installed here, whose own requirements are met as well."""
    for text in EXTRAS[extra]:
        wanted = Requirement(text)
        assert any(item.operator == ">=" for item in wanted.specifier), f"{text} has no lower bound"
        try:
            found = list(packages.closure(wanted))
        except PackageNotFoundError as missing:
            pytest.skip(f"{missing.name} is not installed")
        assert wanted.specifier.contains(distribution(wanted.name).version, prereleases=True), text
        assert extra in WITH_TORCH or "torch" not in {item.name.lower() for item in found}, f"{text} brings a torch"


def test_pins_of_the_tests_lie_within_the_extras() -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\d[\d.]*)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    wanted = {item.name: item for texts in EXTRAS.values() for item in map(Requirement, texts)}
    (apart,) = re.findall(
        r"--target \$\(VENV\)/networks .*-c constraints.txt (.+)$", (ROOT / "Makefile").read_text(), re.M
    )
    assert pins.keys() - set(apart.split()) <= wanted.keys()
    assert all(wanted[name].specifier.contains(f"{pin.rstrip('.')}.0") for name, pin in pins.items() if name in wanted)


def test_every_extra_that_is_named_exists() -> None:
    files = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").iterdir()]
    files += (ROOT / "src").rglob("*.py")
    named = {name for file in files if Path(file).is_file() for name in _named(file.read_text())}
    (tested,) = re.findall(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named |= set(tested.split())
    assert {"mpi", "dev"} <= named
    assert named <= EXTRAS.keys()


def _named(text: str) -> set[str]:
    return {name for group in NAMED_EXTRAS.findall(text) for name in group.split(",")}
