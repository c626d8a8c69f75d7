"""A .keras file that names code, or weights in other files, is refused before Keras sees it."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from ringlet import Predictor
from ringlet.errors import ModelFileError
from ringlet.export import export_model

pytestmark = [pytest.mark.xdist_group("hostile_keras"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def keras_file(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")
    pytest.importorskip("torch")
    pytest.importorskip("keras")
    place = tmp_path_factory.mktemp("keras") / "classes.keras"
    export_model(model_folder / "classes.safetensors", "keras", place)
    return place


def rewritten(source: Path, **members: bytes) -> Path:
    """A copy with other members: ``config``, ``weights``, and under any other name an additional one."""
    names = {"config": "config.json", "weights": "model.weights.h5"}
    found = {name: zipfile.ZipFile(source).read(name) for name in zipfile.ZipFile(source).namelist()}
    found |= {names.get(name, name): content for name, content in members.items()}
    with zipfile.ZipFile("changed.keras", "w") as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return Path("changed.keras")


def config_of(source: Path) -> dict:
    return json.loads(zipfile.ZipFile(source).read("config.json"))


@pytest.mark.parametrize(
    "change",
    [
        {"class_name": "Lambda"},
        {"class_name": "TorchModuleWrapper"},
        {"class_name": "StringLookup"},
        {"module": "os"},
        {"module": "kerashub.layers"},
        {"module": None},
        {"registered_name": "somebody>Layer"},
        {"config": {"activation": {"class_name": "function", "module": "builtins", "config": "get_file"}}},
        {"config": {"activation": {"class_name": "__lambda__", "config": {"value": "x"}}}},
    ],
)
def test_a_keras_file_with_a_class_that_no_export_has_is_refused(keras_file, change):
    config = config_of(keras_file)
    config["config"]["layers"][2] |= change
    with pytest.raises(ModelFileError, match="no export of Ringlet has"):
        Predictor(rewritten(keras_file, config=json.dumps(config).encode()))


def test_a_lambda_is_refused_even_where_a_program_has_switched_safe_mode_off(keras_file):
    import keras
    from keras.src.backend.common import global_state

    inputs = keras.Input((12, 16, 3), dtype="uint8")
    code = keras.layers.Lambda(lambda x: (open("was-run", "w"), x)[1], output_shape=(12, 16, 3))  # noqa: SIM115, PTH123
    outputs = keras.layers.Dense(3)(keras.layers.Flatten()(code(inputs)))
    keras.Model(inputs, outputs).save("lambda.keras")
    Path("was-run").unlink(missing_ok=True)
    description = zipfile.ZipFile(keras_file).read("ringlet.json")
    before = global_state.get_global_attribute("safe_mode_saving")
    keras.config.enable_unsafe_deserialization()
    try:
        with pytest.raises(ModelFileError, match="Lambda"):
            Predictor(rewritten(Path("lambda.keras"), **{"ringlet.json": description}))
    finally:
        global_state.set_global_attribute("safe_mode_saving", before)
    assert not Path("was-run").exists()


def test_a_keras_file_with_other_members_is_refused(keras_file):
    with pytest.raises(ModelFileError, match=r"holds 'assets/\.\./x'"):
        Predictor(rewritten(keras_file, **{"assets/../x": b""}))


@pytest.mark.parametrize("kind", ["external", "link", "soft"])
def test_keras_weights_in_other_files_are_refused(keras_file, kind):
    import h5py

    content = io.BytesIO(zipfile.ZipFile(keras_file).read("model.weights.h5"))
    with h5py.File(content, "r+") as file:
        place = next(name for name in _datasets(file) if file[name].size > 10)
        shape, size = file[place].shape, file[place].size
        del file[place]
        Path("secret").write_bytes(bytes(4 * size))
        if kind == "external":
            file.create_dataset(place, shape, "f4", external=[(str(Path("secret").absolute()), 0, 4 * size)])
        else:
            file[place] = h5py.ExternalLink("secret", "/x") if kind == "link" else h5py.SoftLink("/x")
    with pytest.raises(ModelFileError, match="kept in another place"):
        Predictor(rewritten(keras_file, weights=content.getvalue()))


def _datasets(file) -> list[str]:
    import h5py

    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found
