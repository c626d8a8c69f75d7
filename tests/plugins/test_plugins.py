"""A package that adds one thing of every kind is installed into a folder of its own and used by name."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringlet import plugins
from ringlet.cli.main import main
from ringlet.config import RunConfig
from ringlet.data import load_dataset
from ringlet.data.augmentation import AUGMENTATIONS
from ringlet.data.formats import DATASETS
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.losses import LOSSES
from ringlet.metrics import METRICS
from ringlet.models import zoo
from ringlet.optim import OPTIMIZERS, SCHEDULES
from ringlet.strategies.contract import STRATEGIES
from ringlet.trackers.registry import TRACKERS

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
def installed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package can be imported; work in an empty folder. Nothing of it is known to later tests."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for registry in (AUGMENTATIONS, DATASETS, LOSSES, METRICS, OPTIMIZERS, SCHEDULES, STRATEGIES, TRACKERS):
        for key, entry in list(registry._entries.items()):
            if entry.__module__.startswith("ringlet_sample"):
                del registry._entries[key]
    for name in [name for name in sys.modules if name.partition(".")[0] == "ringlet_sample"]:
        del sys.modules[name]


FILE = """\
[model]
name = "tiny-linear"
width = 4

[dataset]
name = "stripes"
contrast = 120

[augmentation.darken]
factor = 0.9

[optimizer]
name = "lion"
learning_rate = 0.02
beta3 = 0.95

[schedule.sawtooth]
period = 3

[strategy]
name = "polite"
greeting = "good day"

[trackers.lines]
file = "told.txt"

[loss]
name = "cubic"
factor = 2.0

[metrics]
accuracy = true
doubt = true
"""
"""One component of every kind, with an option of its own."""


def test_a_run_uses_components_of_a_plugin_by_a_file(installed, capfd):
    Path("run.toml").write_text(FILE)
    words = ["train", "run.toml", "-n", "2", "--launcher", "local", "--run-dir", "run", "--num-epochs", "40"]
    assert main([*words, "--json"]) == 0, capfd.readouterr().err
    result = json.loads(capfd.readouterr().out)
    assert result["num_parameters"] == 36 * 4 + 4 + 4 * 2 + 2
    assert result["test"]["accuracy"] > 0.9
    assert 0 < result["test"]["doubt"] < 0.5
    told = Path("run/told.txt").read_text().split()
    assert (told[0], told[-1]) == ("run_started", "run_ended")
    written = tomllib.loads(Path("run/config.toml").read_text())
    assert written["optimizer"] == {"name": "lion", "learning_rate": 0.02, "beta1": 0.9, "beta3": 0.95}
    assert written["schedule"] == {"sawtooth": {"period": 3, "low": 0.5}}
    assert main(["resume", "run", "--num-epochs", "41"]) == 0, capfd.readouterr().err
    capfd.readouterr()
    assert main(["resume", "run", "--num-epochs", "42", "--optimizer.beta3", "0.5"]) == 2
    assert "optimizer.beta3: 0.95 before, 0.5 now" in capfd.readouterr().err


def test_the_same_run_by_options(installed, capfd):
    words = ["train", "--dataset", "stripes", "--dataset.contrast", "120", "--model", "tiny-linear", "--model.width=4"]
    words += ["--optimizer", "lion", "--learning-rate", "0.02", "--optimizer.beta3", "0.95", "--strategy", "polite:hi"]
    words += ["--schedule", "sawtooth", "--schedule.sawtooth.period", "3", "--augmentation.darken.factor", "0.9"]
    words += ["--trackers", "lines:told.txt", "--num-epochs", "40", "--run-dir", "run", "--json"]
    assert main(words) == 0, capfd.readouterr().err
    assert json.loads(capfd.readouterr().out)["test"]["accuracy"] > 0.9
    assert Path("run/told.txt").is_file()


def test_options_of_plugins_are_checked_as_those_of_ringlet(installed, capsys):
    Path("wrong.toml").write_text(FILE.replace("beta3 = 0.95", "beta3 = 1.5").replace("period = 3", "periods = 3"))
    assert main(["config", "check", "wrong.toml"]) == 2
    told = capsys.readouterr().err
    assert "wrong.toml, line 15: optimizer.beta3: 1.5 is out of range, expected less than 1" in told
    assert "wrong.toml, line 18: schedule.sawtooth.periods: no such option. Did you mean 'period'?" in told
    assert main(["train", "--strategy", "polite:rude"]) == 2
    assert "--strategy: 'rude' is not polite" in capsys.readouterr().err
    assert main(["init", "-", "--optimizer", "lion"]) == 0
    assert "\n# Share of the average that is kept\n#beta3 = 0.99\n" in capsys.readouterr().out


def test_lists_name_plugins_and_what_is_wrong_with_them(installed, capsys):
    assert main(["models", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert listed["tiny_linear"]["summary"] == "one hidden layer (ringlet-sample 1.2)"
    assert "plugin 'broken_net' (ringlet-sample 1.2) cannot be loaded" in listed["broken_net"]["summary"]
    assert main(["datasets", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert found["stripes"]["description"] == "Dark and bright images, 6x6"
    assert found["stripes"]["origin"] == "plugin"
    assert "cannot be loaded" in found["broken-data"]["description"]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: load_dataset("strips"), UnknownNameError, "Did you mean 'stripes'"),
        (lambda: zoo.create("tiny_linar"), UnknownNameError, "Did you mean 'tiny_linear'"),
        (lambda: RunConfig(strategy="polit"), ConfigError, "Did you mean 'polite'"),
        (lambda: RunConfig(optimizer="lio"), ConfigError, "Did you mean 'lion'"),
        (
            lambda: load_dataset("broken-data"),
            UsageError,
            r"plugin 'broken-data' \(ringlet-sample 1.2\) cannot be loaded: ModuleNotFoundError: No module named",
        ),
        (lambda: load_dataset("no_data"), UsageError, "plugin 'no_data' .* expected a data set called 'no_data'"),
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
