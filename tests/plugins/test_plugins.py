"""A package that adds one thing of every kind is installed into a folder of its own and used by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringlet import plugins
from ringlet.cli.main import main
from ringlet.config import RunConfig
from ringlet.data import load_dataset
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.models import zoo

pytestmark = pytest.mark.xdist_group("plugins")
SAMPLE = Path(__file__).parent / "sample"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample package, installed as ``pip install --target`` leaves it: its modules, and what it says of itself."""
    target = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source") / "sample"
    _copy(SAMPLE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--target", target, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def _copy(source: Path, target: Path) -> None:
    """Only the package's own files, so that the build leaves nothing in the repository."""
    for path in source.rglob("*"):
        if path.is_file() and path.suffix in (".py", ".toml"):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


@pytest.fixture
def installed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package can be imported; work in an empty folder."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_uses_data_network_strategy_and_tracker_of_a_plugin(installed, capfd):
    words = ["train", "-n", "2", "--launcher", "local", "--dataset", "stripes", "--model", "tiny-linear"]
    words += ["--model-options", "width=4", "--strategy", "polite:x", "--log", "lines:told.txt", "--run-dir", "run"]
    assert main([*words, "--num-epochs", "12", "--learning-rate", "0.05", "--json"]) == 0, capfd.readouterr().err
    result = json.loads(capfd.readouterr().out)
    assert result["num_parameters"] == 36 * 4 + 4 + 4 * 2 + 2
    assert result["test"]["accuracy"] == 1.0
    told = Path("run/told.txt").read_text().split()
    assert (told[0], told[-1]) == ("run_started", "run_ended")


def test_lists_name_plugins_and_what_is_wrong_with_them(installed, capsys):
    assert main(["models", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert listed["tiny_linear"]["summary"] == "one hidden layer (ringlet-sample 1.2)"
    assert "plugin 'broken_net' (ringlet-sample 1.2) cannot be loaded" in listed["broken_net"]["summary"]
    assert main(["datasets", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert found["stripes"]["description"] == "Dark and bright images, 6x6."
    assert found["stripes"]["origin"] == "plugin"
    assert "cannot be loaded" in found["broken-data"]["description"]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: load_dataset("strips"), UnknownNameError, "Did you mean 'stripes'"),
        (lambda: zoo.create("tiny_linar"), UnknownNameError, "Did you mean 'tiny_linear'"),
        (lambda: RunConfig(strategy="polit"), ConfigError, "Did you mean 'polite'"),
        (
            lambda: load_dataset("broken-data"),
            UsageError,
            r"plugin 'broken-data' \(ringlet-sample 1.2\) cannot be loaded: ModuleNotFoundError: No module named",
        ),
        (lambda: load_dataset("no_data"), UsageError, "plugin 'no-data' .* expected a function that takes a Request"),
        (lambda: zoo.create("tiny_linear", depth=3), UnknownNameError, "option of model 'tiny_linear' 'depth'"),
    ],
)
def test_errors_name_the_plugin_or_the_nearest_name(
    installed, use: Callable[[], object], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        use()


def test_plugins_are_not_looked_for_when_a_name_is_built_in(installed, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("it looked for plugins")

    monkeypatch.setattr(plugins, "_found", refuse)
    load_dataset("digits")
    zoo.create("simplemlp")
    RunConfig(strategy="average:3")
