"""Source distribution and wheels, made once; see ``packages``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import packages

FAILING_COMPILER = "#!/bin/sh\necho 'no compiler here' >&2\nexit 1\n"


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("scikit_build_core")
    return packages.build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The one in the folder RINGLET_TEST_WHEEL, which `make test` installs; else one for a single instruction set."""
    folder = os.environ.get("RINGLET_TEST_WHEEL")
    if folder:
        (file,) = Path(folder).resolve().glob("ringlet-*.whl")
        return file
    pytest.importorskip("nanobind")
    fewer = ("-C", "cmake.define.RINGLET_INSTRUCTION_SETS=x86_64_v2") if os.uname().machine == "x86_64" else ()
    return packages.build_wheel(request.getfixturevalue("sdist"), tmp_path_factory.mktemp("built") / "wheel", *fewer)


@pytest.fixture(scope="session")
def reference_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the source distribution becomes where no compiler works."""
    folder = tmp_path_factory.mktemp("reference")
    compiler = folder / "c++"
    compiler.write_text(FAILING_COMPILER)
    compiler.chmod(0o755)
    return packages.build_wheel(sdist, folder / "wheel", CC=str(compiler), CXX=str(compiler))
