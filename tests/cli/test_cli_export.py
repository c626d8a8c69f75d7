"""``ringlet export`` as a user sees it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from ringlet import Predictor, RunConfig, Trainer, load_dataset
from ringlet.libraries import switch_telemetry_off

pytestmark = [pytest.mark.xdist_group("cli_export"), pytest.mark.filterwarnings("ignore")]
switch_telemetry_off()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a run leaves behind: its configuration and its model."""
    folder = tmp_path_factory.mktemp("trained")
    config = RunConfig(model="vgg1bn", dataset="digits", num_epochs=1, shards=1)
    (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    trainer = Trainer(config=config)
    trainer.fit()
    trainer.save(folder / "model.safetensors")
    return folder


@pytest.fixture
def run(trained):
    return Path(shutil.copytree(trained, "run"))


def test_the_figures_are_printed_and_the_files_named(ringlet, run):
    pytest.importorskip("openvino")
    outcome = ringlet("export", "run", "--to", "openvino", "--weights", "fp16", "-o", "small.xml", "--samples", "20")
    assert outcome.code == 0, outcome.stderr
    assert "**** Export of run to OpenVINO, fp16 weights" in outcome.stderr
    lines = outcome.stdout.splitlines()
    assert lines[0] == "vgg1bn, compared with the training engine on 20 samples (validation data of 'digits'):"
    assert [line.split(":")[0].strip() for line in lines[1:5]] == [
        "largest difference",
        "mean difference",
        "same class",
        "batch norms folded",
    ]
    assert lines[5].startswith("Model: small.xml, small.bin (0.")
    assert Path("small.bin").is_file()


def test_json_is_one_document(ringlet, run):
    pytest.importorskip("onnxruntime")
    outcome = ringlet("export", "run/model.safetensors", "--to", "onnx", "--json")
    document = json.loads(outcome.stdout)
    assert document["files"] == ["run/model.onnx"]
    assert document["parity"]["largest_difference"] <= 1e-4
    assert (document["num_folded"], len(document["sha256"])) == (2, 64)


def test_an_export_evaluates_like_the_run(ringlet, run):
    pytest.importorskip("onnxruntime")
    ringlet("export", "run", "--to", "onnx")
    images, targets = load_dataset("digits").test.read(np.arange(200))
    accuracy = np.mean([r.class_index for r in Predictor("run/model.onnx", threads=1).predict(images)] == targets)
    expected = np.mean([r.class_index for r in Predictor("run", threads=1).predict(images)] == targets)
    assert accuracy == expected > 0.5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Missing argument 'MODEL'"),
        (("run",), 2, "Missing option '--to'"),
        (("run", "--to", "tensorflow"), 2, "unknown target 'tensorflow'"),
        (("run", "--to", "keras", "--weights", "fp16"), 2, "keras exports have fp32 weights"),
        (("none", "--to", "onnx"), 1, "'none' cannot be exported"),
        (("run", "--to", "onnx", "-o", "x.xml"), 2, "ends in '.onnx'"),
        (("run", "--to", "onnx", "--samples", "0"), 2, "--samples"),
        (("run", "--to", "onnx", "-o", "/proc/x.onnx"), 2, "cannot write '/proc/x.onnx'"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, run, arguments, code, message):
    outcome = ringlet("export", *arguments)
    assert (outcome.code, message in outcome.stderr) == (code, True), outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


def test_a_missing_library_is_named_with_the_way_to_get_it(ringlet, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnx.helper", None)
    outcome = ringlet("export", "run", "--to", "onnx")
    assert outcome.code == 2
    assert 'pip install "ringlet[onnx]"' in outcome.stderr
    assert sorted(path.name for path in run.iterdir()) == ["config.toml", "model.safetensors"]
