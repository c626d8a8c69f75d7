"""Real searches of a tiny network: interrupted and resumed, with divergence, from Python, and wrongly called."""

from __future__ import annotations

import json
import signal
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import ringlet as package
from ringlet.errors import UsageError
from ringlet.models.files import load_model_file

TINY = (
    "--model",
    "simplemlp",
    "--steps-per-epoch",
    "4",
    "--batch-size",
    "32",
    "--optimizer",
    "sgd",
    "--kernels",
    "reference",
)
SPACE = {
    "optimizer.learning_rate": "log(0.01,0.5)",
    "optimizer.momentum": "0.0,0.9",
    "training.clip_value": "1e-30,1.0",
}
SEARCH = (*TINY, *(word for name, values in SPACE.items() for word in ("--space", f"{name}={values}")))
SEARCH += ("--trials", "4", "--num-epochs", "4", "--method", "halving:2", "--launcher", "local", "--parallel", "2")
pytestmark = pytest.mark.xdist_group("searches")


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def learned(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What does not depend on the clock."""
    names = ("trial", "epochs", "values", "status", "value", "curve")
    return [tuple(json.dumps(trial[name]) for name in names) for trial in document["trials"]]


def test_an_interrupted_search_gives_what_one_in_one_piece_gives_and_its_best_can_be_trained(
    begin, ringlet, own_folder: Path
) -> None:
    whole = ringlet("tune", "search", *SEARCH, "--tune-dir", "whole")
    assert whole.code == 0, whole.stderr
    document = results(own_folder / "whole")
    assert [trial["epochs"] for trial in document["trials"]] == [4, 2, 1, 1]
    assert f"Best: trial {document['best']['trial']}, val_loss" in whole.stdout
    kept = sorted(path.parent.name for path in (own_folder / "whole" / "trials").glob("*/model.safetensors"))
    assert kept == [f"{document['best']['trial']:04}"]

    command = [sys.executable, "-m", "ringlet", "tune"]
    first = begin([*command, "search", *SEARCH, "--tune-dir", "cut"], cwd=own_folder)
    first.wait_for("epochs] trial", stream="stderr")
    first.process.send_signal(signal.SIGINT)
    done = first.finish()
    assert done.returncode == 5, done.stderr
    assert "To continue: ringlet tune resume cut" in done.stderr
    records = {path: path.read_bytes() for path in (own_folder / "cut" / "trials").glob("*.json")}
    assert 1 <= len(records) < 7
    again = ringlet("tune", "search", *SEARCH, "--tune-dir", "cut")
    assert again.code == 0, again.stderr
    assert {path: path.read_bytes() for path in records} == records
    assert learned(results(own_folder / "cut")) == learned(document)

    trained = ringlet("train", "whole/best.toml", "--run-dir", "best")
    assert trained.code == 0, trained.stderr
    one, other = (
        load_model_file(own_folder / name / "model.safetensors") for name in ("best", f"whole/trials/{kept[0]}")
    )
    assert all((one.tensors[name] == other.tensors[name]).all() for name in one.tensors)

    check_page((own_folder / "whole" / "report.html").read_text(encoding="utf-8"))
    assert sorted(path.name for path in (own_folder / "whole" / "plots").iterdir()) == ["curves.png", "options.png"]
    other_seed = ringlet("tune", "search", *SEARCH, "--tune-dir", "whole", "--seed", "1")
    assert (other_seed.code, "holds another search: run differ" in other_seed.stderr) == (2, True), other_seed.stderr


def check_page(text: str) -> None:
    """Nothing points outside the page, and no script runs in it."""

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "link", "iframe")
            assert all(name not in ("src", "href") or (value or "").startswith("#") for name, value in attrs)

    Checker().feed(text)
    assert "optimizer.learning_rate" in text


def test_a_trial_that_diverges_is_recorded_and_the_others_are_compared(own_folder: Path) -> None:
    space = {"optimizer.learning_rate": [1e30, 0.1]}
    options: dict[str, Any] = {"model": "simplemlp", "optimizer": "sgd", "num_epochs": 1, "steps_per_epoch": 3}
    options |= {"kernels": "reference", "metric": "accuracy", "trials": 4, "method": "random", "directory": "d"}
    found = package.tune(space, **options)
    assert found.metric == "val_accuracy"
    assert [trial.values["optimizer.learning_rate"] for trial in found.trials] == [0.1, 1e30]
    assert {trial.status for trial in found.trials if trial.values["optimizer.learning_rate"] > 1} == {"diverged"}
    assert "diverged" in found.trials[-1].reason
    assert found.config.optimizer.learning_rate == 0.1
    assert found.best.value == max(trial.value for trial in found.trials if trial.value is not None)
    before = {path: path.stat().st_mtime_ns for path in (own_folder / "d" / "trials").iterdir()}
    assert package.tune(space, **options).best == found.best
    assert {path: path.stat().st_mtime_ns for path in (own_folder / "d" / "trials").iterdir()} == before
    with pytest.raises(UsageError, match=r"all 1 trials diverged or failed.*diverged in epoch 1"):
        package.tune({"optimizer.learning_rate": [1e30]}, **{**options, "directory": "e"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected at least one option"),
        (("--space", "learning_rate=log(1e-3,1)", "--method", "halvin"), "Did you mean 'halving'?"),
        (("--space", "learning_rate=log(1e-3,1)", "--trials", "0"), "trials: 0 is out of range"),
        (("--space", "learning_rate=log(1e-3,1)", "--metric", "dice"), "metric 'dice' is not reported"),
        (("--space", "num_epochs=1,2"), "num_epochs cannot be searched: it is the length of all trials"),
        (("--space", "optimizer=sgd,adm"), "Did you mean 'adam'?"),
        (("--space", "learning_rate=log(1e-3,1)", "--run-dir", "x"), "unknown option '--run-dir'"),
        (("--space", "learning_rate=log(1e-3,1)", "--stop-after", "1"), "the method decides how long"),
        (("--space", "learning_rate=log(1e-3,1)", "--num-epochs", "0"), "at least one epoch"),
        (("--space", "model=simplemlp,simplmlp"), "Did you mean 'simplemlp'?"),
    ],
)
def test_wrong_command_lines_are_explained_and_leave_nothing(ringlet, own_folder: Path, words, message) -> None:
    outcome = ringlet("tune", "search", *words)
    assert (outcome.code, message in outcome.stderr) == (2, True), outcome.stderr
    assert list(own_folder.iterdir()) == []


def test_a_folder_without_a_search_is_no_search(ringlet) -> None:
    outcome = ringlet("tune", "resume", "nowhere")
    assert (outcome.code, "'nowhere' holds no search" in outcome.stderr) == (2, True)
    Path("old").mkdir()
    Path("old/tune.json").write_text("[]")
    assert "is damaged" in ringlet("tune", "resume", "old").stderr
