"""Exporting a run: what is written, where, what is compared, and that nothing wrong is ever kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ringlet import Predictor, load_dataset
from ringlet.errors import DataError, ModelFileError, UnknownNameError, UsageError
from ringlet.export import export_model, exporter
from ringlet.io.storage import open_location
from ringlet.models.files import load_model_file, save_model

pytestmark = [pytest.mark.xdist_group("exporter"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def run(digits_run):
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(digits_run, "run"))


def test_the_run_is_compared_on_its_own_validation_data(run):
    pytest.importorskip("openvino")
    result = export_model(run, "openvino")
    assert result.parity.origin == "validation data of 'digits'"
    assert (result.parity.num_samples, result.parity.is_real) == (64, True)
    assert result.parity.largest <= 1e-4
    assert result.parity.agreement == 1.0
    assert (result.num_folded, result.num_batch_norms) == (2, 2)
    assert [path.name for path in result.artifact.files] == ["model.xml", "model.bin"]
    assert json.loads(json.dumps(result.to_dict()))["parity"]["largest_difference"] == result.parity.largest


def test_masks_are_compared_by_dice(shapes_run):
    pytest.importorskip("openvino")
    result = export_model(shapes_run, "openvino", Path("unet.xml"), num_samples=5)
    assert result.parity.num_samples == 5
    assert result.parity.dice == 1.0
    assert Path("unet.bin").is_file()


def test_half_precision_halves_the_weights(run):
    pytest.importorskip("openvino")
    full, half = export_model(run, "openvino"), export_model(run, "openvino", weights="fp16")
    sizes = [Path(result.artifact.weights).stat().st_size for result in (full, half)]
    assert sizes[1] / sizes[0] == pytest.approx(0.5, abs=0.01)
    assert half.artifact.network.name == "model-fp16.xml"
    assert 0 < half.parity.largest < 1e-2


@pytest.mark.parametrize("target", ["onnx", "torch"])
def test_half_precision_in_other_targets(run, target):
    pytest.importorskip("onnxruntime" if target == "onnx" else "torch")
    full, half = (export_model(run, target, weights=weights).artifact.num_bytes for weights in ("fp32", "fp16"))
    assert half / full == pytest.approx(0.5, abs=0.03)


def test_loading_the_draft_leaves_nothing_beside_the_model(run, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for _ in range(2):
        export_model(run, "torch")
    assert not list(run.rglob("__pycache__"))


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_eight_bits_keep_the_classes(run, target, capfd):
    pytest.importorskip("nncf")
    result = export_model(run, target, weights="int8", num_samples=80)
    assert result.calibration == "80 samples, training data of 'digits'"
    assert result.parity.agreement > 0.95
    assert result.artifact.num_bytes < 0.5 * result.num_model_bytes
    assert capfd.readouterr().out == ""


def test_without_data_of_the_run_the_named_data_serve(run):
    pytest.importorskip("openvino")
    images, _ = load_dataset("digits").test.read(np.arange(40))
    np.savez("digits.npz", images=images)
    config = run / "config.toml"
    config.write_text(config.read_text().replace('name = "digits"', 'name = "npz"\npath = "gone.npz"'))
    remarks = []
    result = export_model(run, "openvino", calibration="digits.npz", say=remarks.append)
    assert (result.parity.num_samples, result.parity.origin) == (40, "images of 'digits.npz'")
    assert "gone.npz" in remarks[0]


def test_without_any_data_it_is_compared_on_noise_and_says_so(run):
    pytest.importorskip("openvino")
    file = load_model_file(run / "model.safetensors")
    save_model("bare.safetensors", file.spec, file.tensors, {**file.metadata, "dataset": ""})
    result = export_model("bare.safetensors", "openvino")
    assert (result.parity.origin, result.parity.is_real) == ("random numbers", False)
    with pytest.raises(DataError, match="--calibration"):
        export_model("bare.safetensors", "openvino", weights="int8")


def test_an_export_that_computes_something_else_is_not_kept(run, monkeypatch):
    pytest.importorskip("openvino")
    before = sorted(path.name for path in run.iterdir())

    def spoiled(spec, tensors):
        return fold(spec, {**tensors, "dense2.bias": tensors["dense2.bias"] + np.eye(1, 10, 3, dtype=np.float32)[0]})

    fold = exporter.fold
    monkeypatch.setattr(exporter, "fold", spoiled)
    with pytest.raises(ModelFileError, match=r"outputs differ by up to .*Nothing was written"):
        export_model(run, "openvino")
    assert sorted(path.name for path in run.iterdir()) == before


def test_weights_that_are_not_finite_are_not_exported(run):
    pytest.importorskip("openvino")
    file = load_model_file(run / "model.safetensors")
    file.tensors["dense2.bias"][0] = np.nan
    save_model(run / "model.safetensors", file.spec, file.tensors, file.metadata)
    with pytest.raises(ModelFileError, match="Nothing was written"):
        export_model(run, "openvino")


def test_an_earlier_export_is_replaced(run):
    pytest.importorskip("openvino")
    Path("old.xml").write_text("old")
    Path("old.bin").write_text("old")
    export_model(run, "openvino", "old.xml")
    assert Predictor("old.xml").description.network == "vgg1bn"
    assert (Path("old.xml").stat().st_mode & 0o777) == (Path(run / "config.toml").stat().st_mode & 0o777)


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        ("openvin", {}, UnknownNameError, "Did you mean 'openvino'"),
        ("openvino", {"weights": "int4"}, UnknownNameError, "int8"),
        ("keras", {"weights": "int8"}, UsageError, "that is for onnx, openvino"),
        ("openvino", {"path": "a.onnx"}, UsageError, "ends in '.xml'"),
        ("openvino", {"path": "none/a.xml"}, UsageError, "does not exist"),
        ("torch", {"path": "run/model.py"}, UsageError, "would be overwritten"),
        ("openvino", {"weights": "int8", "calibration": "nothing"}, UsageError, "no data set of that name"),
        ("openvino", {"weights": "int8", "calibration": "mnist:none"}, DataError, "none"),
    ],
)
def test_a_wrong_request_is_refused(run, target, options, error, message):
    pytest.importorskip("openvino")
    with pytest.raises(error, match=message):
        export_model(run, target, **options)


def test_the_path_may_be_a_folder_or_lack_its_ending(run):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'ringlet[onnx]'")
    Path("out").mkdir()
    assert export_model(run, "onnx", "out").artifact.network == Path("out/model.onnx")
    assert export_model(run, "onnx", "named").artifact.network == Path("named.onnx")


@pytest.mark.parametrize(("target", "names"), [("onnx", ["net.onnx"]), ("openvino", ["net.bin", "net.xml"])])
def test_an_export_goes_to_an_object_store_and_is_used_from_there(run, bucket, target, names, monkeypatch):
    pytest.importorskip("onnxruntime" if target == "onnx" else "openvino", reason="needs the runtime of the target")
    monkeypatch.setenv("RINGLET_CACHE", "cache")
    result = export_model(run, target, f"{bucket}/exports/net")
    assert sorted(open_location(bucket).list("exports")) == names
    assert sorted(result.to_dict()["files"]) == [f"{bucket}/exports/{name}" for name in names]
    assert not list(run.glob("*net*"))
    local = export_model(run, target, "local")
    images = load_dataset("digits").test.read(np.arange(4))[0]
    with Predictor(f"{bucket}/exports/net{Path(names[-1]).suffix}") as remote, Predictor(local.artifact) as here:
        assert [found.class_index for found in remote.predict(images)] == [
            found.class_index for found in here.predict(images)
        ]


def test_an_object_store_that_refuses_an_export_is_told(run, bucket, monkeypatch):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'ringlet[onnx]'")

    def refuse(*_, **__):
        raise PermissionError(13, "Access Denied")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.put_file", refuse)
    with pytest.raises(ModelFileError, match=f"cannot write '{bucket}/net.onnx': Access Denied"):
        export_model(run, "onnx", f"{bucket}/net.onnx")
    with pytest.raises(UsageError, match=r"'net.xml' ends in '.xml', an export to onnx ends in '.onnx'"):
        export_model(run, "onnx", f"{bucket}/net.xml")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r'pip install "ringlet\[remote\]"'):
        export_model(run, "onnx", f"{bucket}/net.onnx")


def test_only_models_are_exported(run):
    with pytest.raises(ModelFileError, match="no file 'elsewhere'"):
        export_model("elsewhere", "onnx")
    Path("model.xml").touch()
    with pytest.raises(UsageError, match="export already"):
        export_model("model.xml", "onnx")


# -- consumers that know nothing of Ringlet ---------------------------------------------------------------------------
@pytest.fixture
def images(run):
    """Stored values of some digits, channels last, and what the engine says about them."""
    values, _ = load_dataset("digits").test.read(np.arange(8))
    with Predictor(run, threads=1) as predictor:
        return np.moveaxis(values, 1, 3).copy(), np.stack([r.probabilities for r in predictor.predict(values)])


def test_openvino_alone_reads_the_model_and_its_description(run, images):
    openvino = pytest.importorskip("openvino")
    export_model(run, "openvino")
    model = openvino.Core().read_model(run / "model.xml")
    description = json.loads(model.get_rt_info(["ringlet", "description"]).astype(str))
    outputs = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(images[0])["outputs"]
    np.testing.assert_allclose(outputs, images[1], atol=1e-4)
    assert description["labels"] == [str(digit) for digit in range(10)]
    assert description["preprocessing"]["normalization"]["scale"] == 1 / 16
    assert description["task"] == "classification"


def test_onnx_runtime_alone_reads_the_model_and_its_description(run, images):
    runtime = pytest.importorskip("onnxruntime")
    export_model(run, "onnx")
    session = runtime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["outputs"], {"images": images[0]})[0], images[1], atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["ringlet"])["network"] == "vgg1bn"


def test_pytorch_alone_runs_the_program(run, images):
    pytest.importorskip("torch")
    export_model(run, "torch", "digits.py")
    np.save("images.npy", images[0])
    code = (
        "import sys, numpy, torch, digits\n"
        "outputs = digits.load()(torch.from_numpy(numpy.load('images.npy')))\n"
        "numpy.save('outputs.npy', outputs.numpy())\n"
        "assert not {'ringlet', 'safetensors'} & set(sys.modules)\n"
    )
    # Packages may extend PyTorch when it is imported, as an installed Ringlet does; not here.
    alone = {"PYTHONPATH": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **alone})
    np.testing.assert_allclose(np.load("outputs.npy"), images[1], atol=1e-4)


def test_no_telemetry_is_loaded():
    pytest.importorskip("openvino")
    code = (
        "import sys\n"
        "from ringlet.libraries import require\n"
        "require('openvino'); require('openvino.opset13')\n"
        "print([name for name, module in sys.modules.items() if name.startswith('openvino_telemetry') and module])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"
