"""Installed from the wheel alone, in an empty folder, with the declared requirements and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import packages
import pytest
from packages import Environment, metadata_of

import ringlet

pytestmark = pytest.mark.xdist_group("packaging")
SHORT = ("--model", "simplemlp", "--num-epochs", "1", "--steps-per-epoch", "3")


def requirements(wheel: Path, *extras: str) -> list[str]:
    """What the wheel asks for, without and with extras."""
    wanted = [packages.Requirement(text) for text in metadata_of(wheel).get_all("Requires-Dist") or []]
    chosen = [item for item in wanted if packages.applies(item, {"", *extras})]
    for item in chosen:
        item.marker = None
    return [str(item) for item in chosen]


@pytest.fixture(scope="module")
def with_mpi(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    pytest.importorskip("mpi4py")
    return Environment.create(tmp_path_factory.mktemp("mpi") / "env", wheel, requirements(wheel, "mpi"))


@pytest.fixture(scope="module")
def without_compiler(reference_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("plain") / "env"
    return Environment.create(folder, reference_wheel, requirements(reference_wheel))


def train(environment: Environment, folder: Path, *words: str) -> dict[str, object]:
    """The results of a short training, as the command prints them."""
    results = json.loads(environment.run("ringlet", "train", "--json", *SHORT, *words, folder=folder))
    assert [path.name for path in folder.iterdir() if path.name != ".cache"] == ["runs"]
    return dict(results)


def kernels(environment: Environment, folder: Path) -> tuple[Path, list[str]]:
    """Where the library is, and its kernels."""
    program = "import json, ringlet, ringlet.kernels as k; print(json.dumps([ringlet.__file__, [*k.available()]]))"
    file, names = json.loads(environment.run("python", "-c", program, folder=folder))
    return Path(file), names


def test_the_wheel_with_mpi_trains_alone_and_on_two_ranks(with_mpi: Environment, wheel: Path, tmp_path: Path) -> None:
    assert with_mpi.run("ringlet", "--version", folder=tmp_path) == f"ringlet {ringlet.__version__}\n"
    file, names = kernels(with_mpi, tmp_path)
    assert file.is_relative_to(with_mpi.folder)
    assert ("compiled" in names) == (not wheel.name.endswith("-none-any.whl"))
    for number, words in enumerate([(), ("-n", "2", "--launcher", "mpi")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        train(with_mpi, folder, *words)
        (events,) = folder.glob("runs/*/events.ndjson")
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        assert [line["num_workers"] for line in lines if "num_workers" in line] == [number + 1]
        assert [line["step"] for line in lines if line["event"] == "step_finished"] == [1, 2, 3]


def test_without_a_compiler_it_trains_and_says_what_was_lost(without_compiler: Environment, tmp_path: Path) -> None:
    file, names = kernels(without_compiler, tmp_path)
    assert (file.is_relative_to(without_compiler.folder), names) == (True, ["reference"])
    folder = tmp_path / "work"
    folder.mkdir()
    train(without_compiler, folder)
    assert "the slower NumPy kernels serve" in without_compiler.run("ringlet", "doctor", folder=tmp_path)


def test_what_is_declared_fits_together(with_mpi: Environment, tmp_path: Path) -> None:
    said = packages.run([*packages.PIP, "--python", with_mpi.python, "check"], tmp_path, **packages.outside())
    assert said == "No broken requirements found.\n"
