"""What is in the packages, and what is not."""

from __future__ import annotations

import importlib.machinery
import tarfile
import zipfile
from pathlib import Path

import packages
import pytest
from packages import metadata_of

import ringlet

pytestmark = pytest.mark.xdist_group("packaging")
SOURCES = packages.REPOSITORY / "src"


def library_files() -> set[str]:
    """All files of the library but results of builds."""
    files = (path for path in (SOURCES / "ringlet").rglob("*") if path.is_file())
    kept = (path for path in files if path.suffix not in (".so", ".pyc"))
    return {path.relative_to(SOURCES).as_posix() for path in kept}


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def check_wheel(wheel: Path) -> list[str]:
    """Compiled modules of the wheel; all else must be the library and its description."""
    names = names_in(wheel)
    compiled = [name for name in names if name.endswith(".so")]
    information = f"ringlet-{ringlet.__version__}.dist-info/"
    others = {name for name in names if not name.startswith(information)} - set(compiled)
    assert others == library_files()
    assert {f"{information}licenses/LICENSE", f"{information}licenses/NOTICE"} <= set(names)
    return compiled


def test_the_wheel_is_the_library_and_one_compiled_module(wheel: Path) -> None:
    compiled = check_wheel(wheel)
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    is_compiled = not wheel.name.endswith("-none-any.whl")
    assert len(compiled) == is_compiled, compiled
    assert all(name.removeprefix("ringlet/kernels/_native") in suffixes for name in compiled), compiled


def test_without_a_compiler_the_wheel_is_the_library_alone(reference_wheel: Path) -> None:
    assert reference_wheel.name == f"ringlet-{ringlet.__version__}-py3-none-any.whl"
    assert check_wheel(reference_wheel) == []


def test_the_library_has_what_people_look_for(wheel: Path) -> None:
    """The names above come from the folder of the sources: these must be in it."""
    needed = {"py.typed", "data/builtin/digits.npz", "data/builtin/ATTRIBUTION.md", "compatibility/horovod/__init__.py"}
    assert {f"ringlet/{name}" for name in needed} <= set(names_in(wheel))


def test_the_source_distribution_can_build_and_has_no_tests(sdist: Path) -> None:
    root = f"ringlet-{ringlet.__version__}/"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(root) for name in archive.getnames()}
    native = {f"native/{path.name}" for path in (packages.REPOSITORY / "native").iterdir()}
    build = {"CMakeLists.txt", "LICENSE", "NOTICE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert names >= native | build | {f"src/{name}" for name in library_files()}
    unwanted = ("tests/", "build/", "dist/", "docs/", "deploy/", "runs/", ".venv/", ".ci/", ".github/")
    assert not [name for name in names if name.startswith(unwanted) or name.endswith((".so", ".pyc"))]


def test_both_wheels_ask_for_the_same(wheel: Path, reference_wheel: Path) -> None:
    first, second = metadata_of(wheel), metadata_of(reference_wheel)
    assert first["Version"] == second["Version"] == ringlet.__version__
    assert first.get_all("Requires-Dist") == second.get_all("Requires-Dist")
    assert first["License-Expression"] == "Apache-2.0"
