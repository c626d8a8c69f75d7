"""Exports used by people who do not have Ringlet: opened by the defaults of each library, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ringlet import load_dataset, load_model
from ringlet.cli.main import main
from ringlet.errors import UsageError
from ringlet.export import export_model
from ringlet.export.openvino import ADVICE
from ringlet.export.parity import Parity

pytestmark = [pytest.mark.xdist_group("exporter"), pytest.mark.filterwarnings("ignore")]
STRANGERS = Path(__file__).with_name("strangers.py")


@pytest.mark.parametrize("library", ["openvino", "onnxruntime", "torch"])
def test_each_library_opens_its_export_by_its_own_defaults(library, outputs):
    expected, found, advice = outputs
    name = "onnx" if library == "onnxruntime" else library
    allowed = (
        5e-2 if library == "openvino" else 1e-4
    )  # on some processors it computes in bfloat16 unless told otherwise
    assert np.abs(found[name] - expected).max() <= allowed
    assert (found[name].argmax(1) == expected.argmax(1)).mean() >= 0.95
    if library == "openvino":
        assert np.abs(found["openvino f32"] - expected).max() <= 1e-4
        assert advice == ADVICE


@pytest.fixture(scope="module")
def outputs(digits_run, tmp_path_factory):
    """What the engine gives for some test images, what each library gives, and the advice in the OpenVINO file."""
    for library in ("openvino", "onnxruntime", "torch"):
        pytest.importorskip(library)
    folder = tmp_path_factory.mktemp("stranger")
    for target, name in (("openvino", "net.xml"), ("onnx", "net.onnx"), ("torch", "net.py")):
        export_model(digits_run, target, folder / name)
    images, _ = load_dataset("digits").test.read(np.arange(100))
    np.save(folder / "images.npy", np.moveaxis(images, 1, -1))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run(
        [sys.executable, "-P", STRANGERS, folder], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return load_model(digits_run).predict(images), np.load(folder / "outputs.npz"), done.stdout.strip()


def test_a_library_whose_defaults_compute_in_less_is_told_with_the_remedy(digits_run, monkeypatch, capsys, tmp_path):
    pytest.importorskip("openvino")
    from ringlet.export.openvino import OpenVino

    exact = OpenVino.open_plainly

    def rounded(self, path):
        run = exact(self, path)
        return lambda values: run(values) + np.float32(0.033)

    monkeypatch.setattr(OpenVino, "open_plainly", rounded)
    assert main(["export", str(digits_run), "--to", "openvino", "-o", str(tmp_path / "net.xml")]) == 0
    said = capsys.readouterr()
    assert "its outputs differ by up to 3." in said.err
    assert ADVICE in said.err
    result = export_model(digits_run, "openvino", tmp_path / "net.xml")
    assert isinstance(result.plain, Parity)
    assert result.to_dict()["parity_by_defaults"]["largest_difference"] == pytest.approx(0.033, abs=0.01)
    assert result.parity.largest <= 1e-4


def test_a_place_that_takes_no_files_is_refused_before_anything_is_read(digits_run, monkeypatch):
    """As /proc, which a superuser seems to be allowed to write to."""
    monkeypatch.setattr("ringlet.export.exporter.load_model", lambda *_, **__: pytest.fail("it was read"))
    place = Path("/proc/x.onnx") if Path("/proc/self").exists() else Path("/dev/fd/x.onnx")
    with pytest.raises(UsageError, match=rf"cannot write '{place}': folder '{place.parent}' takes no files"):
        export_model(digits_run, "onnx", place)


def test_a_folder_with_the_name_of_the_file_is_refused(digits_run, tmp_path):
    (tmp_path / "net.onnx" / "model.onnx").mkdir(parents=True)
    with pytest.raises(UsageError, match="it is a folder"):
        export_model(digits_run, "onnx", tmp_path / "net.onnx")
