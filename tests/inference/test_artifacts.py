"""Artifacts are found by their names, describe themselves, and are refused if they are not what they say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import pytest

from ringlet import Predictor
from ringlet.data.normalization import BYTES
from ringlet.errors import ModelFileError, UsageError
from ringlet.inference import Artifact, Description
from ringlet.inference.description import describe
from ringlet.models import zoo


@pytest.fixture
def description() -> Description:
    return describe(zoo.create("simplecnn"), BYTES, ("näin", 'quote"', "</xml>"), dataset="d", weights="fp16")


def test_a_description_survives_its_text(description):
    text = description.to_json()
    assert Description.from_json(text) == description
    assert text.isascii()


def change(text: str, **values: object) -> str:
    return json.dumps({**json.loads(text), **values})


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"labels": [1]},
        {"labels": "abc"},
        {"weights": "int4"},
        {"network": None},
        {"output_shape": [0]},
        {"output_shape": "x"},
        {"preprocessing": {}},
        {"preprocessing": {"input_shape": [3, 4], "normalization": {"scale": 1, "mean": [0], "std": [1]}}},
        {"preprocessing": {"input_shape": [3, 4, 4], "normalization": {"scale": 0, "mean": [0], "std": [1]}}},
    ],
)
def test_a_damaged_description_is_refused(description, changes):
    with pytest.raises(ModelFileError, match="description"):
        Description.from_json(change(description.to_json(), **changes))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100])
def test_what_is_no_description_is_refused(text):
    with pytest.raises(ModelFileError):
        Description.from_json(text)


def test_classes_without_names_have_numbers(description):
    assert [description.label(index) for index in (0, 3)] == ["näin", "3"]


def test_a_run_directory_is_its_model(classes):
    Path("run").mkdir()
    shutil.copy(classes, "run/model.safetensors")
    assert Artifact.find("run").network == Path("run/model.safetensors")


def test_an_openvino_model_is_found_by_each_of_its_files_and_its_folder(exports):
    Path("out").mkdir()
    for name in ("classes.xml", "classes.bin"):
        shutil.copy(exports / name, "out")
    for place in ("out", "out/classes.xml", "out/classes.bin"):
        assert Artifact.find(place).files == [Path("out/classes.xml"), Path("out/classes.bin")]


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("nowhere", ModelFileError, "does not exist"),
        ("none.onnx", ModelFileError, "no such file"),
        ("notes.txt", UsageError, r"\.safetensors, \.xml"),
        ("empty", ModelFileError, "holds 0 model files"),
        ("lonely.xml", ModelFileError, r"lacks its weights: expected lonely\.bin"),
    ],
)
def test_what_is_no_model_is_refused(place, error, message):
    Path("empty").mkdir()
    Path("notes.txt").touch()
    Path("lonely.xml").touch()
    with pytest.raises(error, match=message):
        Artifact.find(place)


def test_a_folder_with_two_models_is_ambiguous(exports):
    with pytest.raises(ModelFileError, match="name the file"):
        Artifact.find(exports)


def damaged(source: Path, target: str, content: bytes) -> str:
    Path(target).write_bytes(content)
    second = source.with_suffix(".bin")
    shutil.copy(second, Path(target).with_suffix(".bin"))
    return target


def test_a_damaged_openvino_model_is_refused(exports):
    source = exports / "classes.xml"
    content = source.read_bytes()
    with pytest.raises(ModelFileError, match=r"half\.xml is not a readable OpenVINO model"):
        Predictor(damaged(source, "half.xml", content[: len(content) // 2]))
    with pytest.raises(ModelFileError, match="no description of Ringlet"):
        Predictor(damaged(source, "bare.xml", content.replace(b"ringlet", b"another")))
    with pytest.raises(ModelFileError, match="its description says"):
        Predictor(
            damaged(
                source, "other.xml", content.replace(b"&quot;output_shape&quot;:[3]", b"&quot;output_shape&quot;:[4]")
            )
        )


def test_weights_that_are_cut_off_are_refused(exports):
    shutil.copy(exports / "classes.xml", "cut.xml")
    Path("cut.bin").write_bytes((exports / "classes.bin").read_bytes()[:100])
    with pytest.raises(ModelFileError, match=r"cut\.xml"):
        Predictor("cut.xml")


def test_damaged_models_of_other_kinds_are_refused():
    pytest.importorskip("onnxruntime")
    for name in ("x.onnx", "x.keras", "x.safetensors"):
        Path(name).write_bytes(b"nonsense")
        with pytest.raises(ModelFileError, match=name):
            Predictor(name)


def test_a_program_without_description_is_never_run():
    pytest.importorskip("torch")
    Path("p.py").write_text("raise SystemExit('I was run')")
    Path("p.safetensors").touch()
    with pytest.raises(ModelFileError, match="no description of Ringlet"):
        Predictor("p.py")


def test_some_kinds_live_in_files_only(classes):
    with pytest.raises(UsageError, match="from memory"):
        Predictor(Artifact.find(classes).loaded())


# -- object stores ----------------------------------------------------------------------------------------------------
@pytest.fixture
def send(bucket, monkeypatch):
    """Put files into the object store: ``send("net/model.safetensors", path)``."""
    monkeypatch.setenv("RINGLET_CACHE", "cache")

    def send(name, path):
        fsspec.filesystem("memory").pipe_file(f"{bucket}/{name}", path.read_bytes())
        return f"{bucket}/{name}"

    return send


@pytest.mark.parametrize("named", ["file", "run", "as a path"])
def test_a_model_in_an_object_store_predicts_as_one_of_this_machine(send, classes, pictures, named):
    address = send("runs/night/model.safetensors", classes)
    address = {"file": address, "run": address.rpartition("/")[0], "as a path": Path(address)}[named]
    with Predictor(address) as remote, Predictor(classes) as here:
        found, expected = (predictor.predict(pictures[:3]) for predictor in (remote, here))
    assert [result.probability for result in found] == [result.probability for result in expected]
    assert remote.artifact.sha256() == here.artifact.sha256()


def test_a_model_that_was_replaced_in_an_object_store_is_fetched_again(send, classes, masks):
    address = send("model.safetensors", classes)
    assert Predictor(address).description.network == "classes"
    send("model.safetensors", masks)
    assert Predictor(address).description.network == "masks"


def test_both_halves_come_from_an_object_store(send, exports):
    send("classes.bin", exports / "classes.bin")
    artifact = Artifact.find(send("classes.xml", exports / "classes.xml"))
    assert [path.name for path in artifact.files] == ["classes.xml", "classes.bin"]
    assert artifact.sha256() == Artifact.find(exports / "classes.xml").sha256()


def test_what_an_object_store_does_not_have_is_told(send, bucket, exports):
    with pytest.raises(ModelFileError, match="no such file"):
        Artifact.find(f"{bucket}/net.onnx")
    with pytest.raises(ModelFileError, match=r"lacks its weights: expected classes\.bin beside it"):
        Artifact.find(send("classes.xml", exports / "classes.xml"))


def test_a_program_in_a_folder_of_an_object_store_is_not_run(send, bucket):
    program = Path("net.py")
    program.write_text("raise SystemExit('run')")
    send("nets/net.py", program)
    with pytest.raises(ModelFileError, match="Programs are run only if they are named themselves"):
        Predictor(f"{bucket}/nets")
