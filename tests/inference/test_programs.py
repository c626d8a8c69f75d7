"""To name data runs no code, whatever lies beside it: only a program that is named itself is run.

The oracle is a file that the program would write.
"""

from __future__ import annotations

import py_compile
import shutil
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from ringlet import Predictor, load_model
from ringlet.data.normalization import BYTES
from ringlet.errors import ModelFileError, RingletError, UsageError
from ringlet.export import export_model
from ringlet.inference import Artifact
from ringlet.inference.description import describe
from ringlet.training.loaded_model import LoadedModel

MARK = "was-run"
GOOD = ("model.safetensors", "run", "beside/x.safetensors")
"""Data that are models, in company of a program."""
BAD = ("weights/x.safetensors", "weights", "alone", "exported", "exported/net.safetensors")
"""What is no model by itself, though the program beside it could be run."""


def program(description: str) -> str:
    return f"open({str(Path(MARK).absolute())!r}, 'w').close()\nDESCRIPTION = {description!r}\ndef load(): return len\n"


@pytest.fixture
def places(classes: Path) -> None:
    """Folders in which programs of every kind lie next to what a user would name."""
    loaded: LoadedModel = load_model(classes)
    text = program(describe(loaded.spec, BYTES, loaded.labels).to_json())
    for folder in ("run", "beside", "weights", "alone", "exported"):
        Path(folder).mkdir()
    for model in GOOD:
        place = Path(model) / "model.safetensors" if Path(model).is_dir() else Path(model)
        shutil.copy(classes, place)
        place.with_suffix(".py").write_text(text)
    Path("weights/x.safetensors").write_bytes(b"not a model")
    Path("exported/net.safetensors").touch()
    for name in ("weights/x.py", "alone/x.py", "exported/net.py"):
        Path(name).write_text(text)


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("place", GOOD)
def test_a_model_is_used_without_running_the_program_beside_it(place, png):
    with Predictor(place) as predictor:
        assert predictor.predict(png(12, 16))[0].error is None
    assert not Path(MARK).exists()


@pytest.mark.usefixtures("places")
def test_a_model_in_a_folder_is_used_without_running_a_script_of_its_name():
    assert Artifact.find("beside").files == [Path("beside/x.safetensors")]


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("place", BAD)
@pytest.mark.parametrize("use", [Predictor, load_model, lambda place: export_model(place, "onnx")])
def test_what_is_no_model_is_refused_and_the_program_beside_it_is_not_run(use, place):
    with pytest.raises(RingletError):
        use(place)
    assert not Path(MARK).exists()


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("place", "program"), [("alone", "x.py"), ("exported", "net.py"), ("exported/net.safetensors", "net.py")]
)
def test_the_error_says_that_a_program_must_be_named(place, program):
    with pytest.raises(ModelFileError, match=rf"if you trust it, name .*{program}|you trust that, name .*{program}"):
        Predictor(place)


@pytest.mark.usefixtures("places")
def test_a_program_that_is_named_is_run():
    pytest.importorskip("torch")
    artifact = Artifact.find("exported/net.py")
    assert artifact.is_program
    assert not Path(MARK).exists(), "to find it is not to run it"
    Predictor(artifact)
    assert Path(MARK).exists()


@pytest.mark.usefixtures("places")
def test_of_a_program_its_source_is_run_and_no_compiled_file():
    pytest.importorskip("torch")
    honest = Path("exported/net.py").read_text()
    hidden = Path("hidden.py")
    hidden.write_text(f"{honest}open('hidden-was-run', 'w').close()\n")
    cached, unchecked = Path("exported/__pycache__"), py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(hidden), cache_from_source("exported/net.py"), invalidation_mode=unchecked)
    Predictor("exported/net.py")
    assert Path(MARK).exists()
    assert not Path("hidden-was-run").exists()
    assert len(list(cached.iterdir())) == 1, "nor is one written"


@pytest.mark.usefixtures("places")
def test_databases_run_no_program_even_if_it_is_named():
    duckdb = pytest.importorskip("duckdb")
    from ringlet.database import register
    from ringlet.database.models import NewModel

    for place in ("exported/net.py", *BAD):
        with pytest.raises((ModelFileError, UsageError)):
            NewModel.read(place, "net")
        with (
            pytest.raises((RingletError, duckdb.Error)),
            duckdb.connect() as connection,
            register(connection, models={"net": place}),
        ):
            connection.sql("select ringlet_predict('net', 'x'::blob)").fetchall()
    assert not Path(MARK).exists()
