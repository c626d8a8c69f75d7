"""What the database tests share: small models, files of DuckDB, and real PostgreSQL servers of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests here share their pictures and their server

from private_server import Server, missing

from ringlet.data.normalization import BYTES
from ringlet.database.models import NewModel
from ringlet.libraries import switch_telemetry_off
from ringlet.models import builder as b
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values
from ringlet.models.spec import ModelSpec

switch_telemetry_off()
PROBE = "do $$ import numpy, openvino, ringlet $$ language plpython3u"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    return folder


def _save(path: Path, spec: ModelSpec, labels: tuple[str, ...], seed: int = 1) -> None:
    tensors = {info.name: initial_values(info, seed, "float32") for info in (*spec.parameters, *spec.state)}
    metadata = {"labels": json.dumps(labels), "normalization": json.dumps(BYTES.to_dict())}
    save_model(path, spec, tensors, metadata)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not trained: ``classes`` (RGB 12x16), ``masks`` (RGB 16x16, one class), ``kinds`` (three), ``other`` classes.

    Each as a model file; ``classes``, ``other`` and ``masks`` also as OpenVINO models, ``kinds`` as ONNX.
    """
    pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'ringlet[openvino]'")
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'ringlet[onnx]'")
    from ringlet.export import export_model

    folder = tmp_path_factory.mktemp("models")
    x = b.relu(b.conv2d(b.image_input((3, 12, 16)), 4, kernel=3))
    classes = b.build("classes", b.softmax(b.dense(b.flatten(b.max_pool2d(x, 2)), 3)))
    _save(folder / "classes.safetensors", classes, ("cat", "dog's", 'cow "x" ü'))
    _save(folder / "other.safetensors", classes, ("cat", "dog", "cow"), seed=2)
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((3, 16, 16)), 4, kernel=3, padding="same")))
    _save(folder / "masks.safetensors", b.build("masks", b.sigmoid(b.conv2d(x, 1, kernel=1))), ("object",))
    x = b.relu(b.conv2d(b.image_input((3, 16, 16)), 4, kernel=3, padding="same"))
    _save(folder / "kinds.safetensors", b.build("kinds", b.softmax(b.conv2d(x, 3, kernel=1))), ("sky", "sea", "land"))
    for name in ("classes", "other", "masks"):
        export_model(folder / f"{name}.safetensors", "openvino")
    export_model(folder / "kinds.safetensors", "onnx")
    return folder


@pytest.fixture(scope="session")
def new_model(models: Path) -> Callable[..., NewModel]:
    """Reads a model: ``new_model("cars", "classes.xml")``."""
    read: dict[tuple[str, str], NewModel] = {}

    def make(name: str, file: str) -> NewModel:
        if (name, file) not in read:
            read[name, file] = NewModel.read(models / file, name)
        return read[name, file]

    return make


@pytest.fixture(scope="session")
def servers() -> Iterator[list[Server]]:
    """Two PostgreSQL servers that end with this process; their tests are in the xdist group ``postgresql``."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'ringlet[database]'")
    pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'ringlet[openvino]'")
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    running: list[Server] = []
    try:
        running += [Server()]
        running += [Server()]
        with psycopg.connect(running[0].fresh_database(), autocommit=True) as connection:
            connection.execute("create extension plpython3u")
            try:
                connection.execute(PROBE)
            except psycopg.Error as error:
                pytest.skip(f"the server's Python cannot use the packages of this one: {error}")
        yield running
    finally:
        for server in running:
            server.stop()


@pytest.fixture
def postgresql(servers: list[Server]) -> str:
    """The address of a new database of the first server."""
    return servers[0].fresh_database()


@pytest.fixture(params=["duckdb", "postgresql"])
def url(request: pytest.FixtureRequest, own_folder: Path) -> str:
    """The address of an empty database, one of each kind; for tests of the group ``postgresql`` too."""
    if request.param == "duckdb":
        pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'ringlet[database]'")
        return f"duckdb:{own_folder / 'shots.db'}"
    address: str = request.getfixturevalue("postgresql")
    return address
