"""``ringlet evaluate`` as a user sees it: tables that fit the terminal, JSON, files, several workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import ringlet as package
from ringlet import Trainer
from ringlet.comm.environments import VARIABLES
from ringlet.data.normalization import BYTES
from ringlet.models import builder as b
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values

METRICS = ("accuracy", "loss")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a short run on digits."""
    from ringlet.config import RunConfig
    from ringlet.training.session import Session

    path = tmp_path_factory.mktemp("trained") / "run"
    Session.open(RunConfig(model="simplecnn", num_epochs=1, run_dir=str(path), threads=1)).run()
    return path


def save(name, spec, labels, dataset="", metrics=("accuracy",)):
    tensors = {info.name: initial_values(info, 2, "float32") for info in (*spec.parameters, *spec.state)}
    about = {"labels": json.dumps(labels), "normalization": json.dumps(BYTES.to_dict()), "dataset": dataset}
    save_model(Path(name), spec, tensors, about | {"metrics": json.dumps(metrics)})


def widest(text):
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", ["80", "140"])
def test_classes_confusion_and_worst_samples_fit_the_terminal(ringlet, trained, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    outcome = ringlet("evaluate", str(trained), "--report", "answers")
    assert outcome.code == 0, outcome.stderr
    first, *rest = outcome.stdout.splitlines()
    assert first.startswith("Test: test_acc: ")
    assert rest[-1] == "Report: answers"
    for word in ("Precision", "macro mean", "Confusion: truth in rows", "Calibration: ", "Most confident wrong"):
        assert word in outcome.stdout
    assert widest(outcome.stdout) <= int(columns)


def test_json_holds_all_that_is_known(ringlet, trained):
    document = json.loads(ringlet("evaluate", str(trained), "--json", "--report", "answers").stdout)
    report = document["report"]
    assert tuple(document["test"]) == METRICS
    assert report["metrics"] == document["test"]
    assert (document["dataset"], document["num_samples"], document["report_folder"]) == ("digits", 360, "answers")
    assert np.trace(report["confusion"]) / 360 == pytest.approx(document["test"]["accuracy"])
    assert [one["name"] for one in report["classes"]] == [str(digit) for digit in range(10)]
    assert len(report["calibration"]["bins"]) == 15
    assert {name: len(found) for name, found in report["examples"].items()} == {
        "most_confident_wrong": 16,
        "least_likely_truth": 16,
    }


def test_the_report_of_a_run_is_kept_in_its_directory(ringlet, trained):
    outcome = ringlet("evaluate", str(trained), "--examples", "3", "--tta", "flip")
    assert "outputs averaged (flip)" in outcome.stderr
    kept = json.loads((trained / "evaluation" / "report.json").read_text())
    assert (kept["tta"], len(kept["examples"]["least_likely_truth"])) == ("flip", 3)


def test_a_run_directory_that_cannot_be_written_is_evaluated_all_the_same(ringlet, trained):
    copy = Path("run")
    copy.mkdir()
    for name in ("config.toml", "model.safetensors"):
        (copy / name).write_bytes((trained / name).read_bytes())
    (copy / "evaluation").touch()
    outcome = ringlet("evaluate", "run")
    assert (outcome.code, outcome.stdout.count("Report:")) == (0, 0)
    assert "the report is not kept in the run directory: cannot make folder" in outcome.stderr


def test_python_and_the_command_line_say_the_same(ringlet, trained):
    found = json.loads(ringlet("evaluate", str(trained), "--json").stdout)["report"]
    trainer = Trainer("simplecnn", "digits", weights_and_bias_filename=str(trained), threads=1)
    expected = trainer.report().to_dict()
    assert expected["metrics"] == pytest.approx(found["metrics"])
    assert expected["confusion"] == found["confusion"]


def test_three_workers_say_the_very_same_as_one(trained):
    """360 samples in units of 64: the third worker gets two units, and the last unit is not full."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    documents = []
    for workers in ("1", "3"):
        options = ("-n", workers, "--launcher", "local", "--threads", "1", "--json", "--report", f"answers{workers}")
        command = [sys.executable, "-m", "ringlet", "evaluate", str(trained), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        documents.append(json.loads(done.stdout)["report"])
    assert documents[0] == documents[1]
    pictures = {path.name: path.read_bytes() for path in Path("answers1").iterdir()}
    assert pictures == {path.name: path.read_bytes() for path in Path("answers3").iterdir()}


@pytest.fixture
def hundred():
    """Pictures of a hundred classes, three each, and an untrained network for them."""
    rng = np.random.default_rng(0)
    names = [f"species-of-a-very-long-name-{index:03d}" for index in range(100)]
    for part in ("train", "test"):
        for name in names:
            folder = Path("data", part, name)
            folder.mkdir(parents=True)
            PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / "1.png")
    x = b.dense(b.flatten(b.image_input((3, 8, 8))), 100)
    save("many.safetensors", b.build("many", b.softmax(x)), names, "folder:data")


def test_of_a_hundred_classes_the_weakest_and_the_most_frequent_confusions_are_shown(ringlet, hundred, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = ringlet("evaluate", "many.safetensors", "--classes", "12")
    assert "The 12 weakest of 100 classes; --classes 0 shows all" in outcome.stdout
    assert "Most frequent confusions" in outcome.stdout
    assert "Confusion: truth" not in outcome.stdout
    assert outcome.stdout.split("macro mean")[0].count("species-of") == 12
    assert widest(outcome.stdout) <= 80
    everything = ringlet("evaluate", "many.safetensors", "--classes", "0").stdout
    assert everything.split("macro mean")[0].count("species-of") == 100


def test_wrong_samples_of_folders_are_named_by_their_files(ringlet, hundred):
    report = json.loads(ringlet("evaluate", "many.safetensors", "--json").stdout)["report"]
    assert report["examples"]["most_confident_wrong"][0]["file"].startswith("data/test/species-of")


def test_masks_are_answered_by_iou_and_dice(ringlet):
    x = b.relu(b.conv2d(b.image_input((3, 16, 16)), 4, kernel=3, padding="same"))
    spec = b.build("scenes", b.softmax(b.conv2d(x, 4, kernel=1)))
    save("scenes.safetensors", spec, ["background", "disc", "box", "bar"], "shapes", ("iou",))
    outcome = ringlet("evaluate", "scenes.safetensors", "--report", "answers", "--tta", "flips")
    for word in ("IoU", "Dice", "Pixels", "disc", "Worst samples"):
        assert word in outcome.stdout
    assert {path.name for path in Path("answers").iterdir()} >= {"worst.png", "report.json", "classes.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tta", "spin"), "test-time augmentation 'spin'"),
        (("--report", "file/below"), "cannot make folder 'file/below'"),
        (("--examples", "-1"), "--examples"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, trained, arguments, message):
    Path("file").touch()
    outcome = ringlet("evaluate", str(trained), *arguments)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
