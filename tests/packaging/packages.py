"""Packages as users get them, and environments that hold such a package and nothing but what it asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
SECONDS = 240
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def run(words: Sequence[object], folder: Path, **environment: str) -> str:
    """What a command prints; a failure shows all of it."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def outside() -> dict[str, str]:
    """The environment without anything that leads into the source tree."""
    return {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "PATH", "TMPDIR")}


def build_sdist(folder: Path) -> Path:
    """The source distribution, made by the hook that all build tools call."""
    program = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run([sys.executable, "-c", program, folder], REPOSITORY, **outside())
    (file,) = folder.glob("*.tar.gz")
    return file


def build_wheel(sdist: Path, folder: Path, *options: str, **environment: str) -> Path:
    """The wheel of a source distribution, built far from the source tree."""
    folder.mkdir()
    words = [
        *PIP,
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-cache-dir",
        "--wheel-dir",
        folder,
        *options,
        sdist,
    ]
    run(words, folder, **outside(), **environment)
    (file,) = folder.glob("*.whl")
    return file


def metadata_of(wheel: Path) -> Message:
    """What a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def closure(requirement: Requirement) -> Iterator[Distribution]:
    """The installed package that a requirement names and all that it asks for itself."""
    waiting, seen = [requirement], set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        found = distribution(wanted.name)
        yield found
        for text in found.requires or []:
            needed = Requirement(text)
            if applies(needed, wanted.extras):
                waiting.append(needed)


def applies(requirement: Requirement, extras: set[str]) -> bool:
    """Whether a requirement counts here, for somebody who asked for these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


@dataclass(frozen=True)
class Environment:
    """A fresh interpreter with one wheel of ours and its declared requirements."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, wheel: Path, requirements: Sequence[str]) -> Environment:
        """``requirements`` are taken from the running environment, with all that they ask for themselves."""
        venv.create(folder, symlinks=True, with_pip=False)
        made = cls(folder)
        for requirement in requirements:
            for found in closure(Requirement(requirement)):
                made._take(found)
        run([*PIP, "--python", made.python, "install", "--no-deps", wheel], folder, **outside())
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return self.folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"

    def _take(self, found: Distribution) -> None:
        for file in found.files or []:
            source, target = Path(str(file.locate())), Path(os.path.normpath(self.packages / file))
            if source.suffix == ".pyc" or target.exists() or not source.is_file():
                continue
            assert target.is_relative_to(self.folder), f"{found.name} has a file outside of its environment: {file}"
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)

    def run(self, *words: object, folder: Path) -> str:
        """What a program of this environment prints, in a folder of its own."""
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {"HOME": str(folder), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", **threads}
        return run([self.folder / "bin" / str(words[0]), *words[1:]], folder, **environment)
