"""Operations of another package: one Python file there, and they train, export and score like Ringlet's own."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from ringlet import operations
from ringlet.cli.main import main
from ringlet.data import load_dataset
from ringlet.engines.engine import create_replica
from ringlet.errors import SpecError, UsageError
from ringlet.export import export_model
from ringlet.kernels import available
from ringlet.libraries import switch_telemetry_off
from ringlet.models import builder as b
from ringlet.models import zoo
from ringlet.models.spec import ModelSpec
from ringlet.models.table import layer_rows

pytestmark = [pytest.mark.xdist_group("keras_exports"), pytest.mark.filterwarnings("ignore")]
PACKAGE = Path(__file__).parent / "curves" / "ringlet_curves.py"
ENTRY_POINTS = """
[ringlet.operations]
softplus = ringlet_curves:SOFTPLUS
swish = ringlet_curves:SWISH
misnamed = ringlet_curves:WRONG

[ringlet.models]
curvy = ringlet_curves:CURVY
"""
switch_telemetry_off()


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory):
    """The package as an installer leaves it: its module, and what it says of itself. Later tests do not know it."""
    before = dict(operations._found)
    folder = tmp_path_factory.mktemp("installed")
    (folder / PACKAGE.name).write_bytes(PACKAGE.read_bytes())
    facts = folder / "ringlet_curves-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: ringlet-curves\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("RINGLET_TUNING", "off")
        yield
    operations._found.clear()
    operations._found.update(before)
    sys.modules.pop("ringlet_curves", None)


@pytest.fixture(scope="module")
def run(installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of the plugin's network, trained on the native engine."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", "--model", "curvy", "--dataset", "digits", "--num-epochs", "3", "--learning-rate", "0.05"]
    assert main([*words, "--run-dir", str(folder), "--json"]) == 0
    return folder


def network(dtype="float64", engine="native", **options):
    spec = zoo.create("curvy", input_shape=(2, 6, 5), num_classes=3)
    return create_replica(engine, spec, local_batch_size=6, dtype=dtype, seed=4, threads=1, **options)


def batch(dtype="float64"):
    rng = np.random.default_rng(1)
    return rng.standard_normal((5, 2, 6, 5)).astype(dtype), rng.integers(0, 3, 5)


def test_it_builds_and_is_counted():
    x = b.apply("softplus", b.apply("swish", b.conv2d(b.image_input((1, 6, 6)), 2, kernel=3), beta=2))
    spec = b.build("own", x)
    assert [node.name for node in spec.nodes[2:]] == ["swish1", "softplus1"]
    assert spec.node("swish1").attributes["beta"] == 2.0
    assert (spec.output_shape, spec.flops["swish1"]) == ((2, 4, 4), 32)
    assert [row.type for row in layer_rows(spec)] == ["Input", "Conv2D", "Swish", "Softplus"]
    assert ModelSpec.from_json(spec.to_json()) == spec


def test_what_is_wrong_is_told():
    x = b.image_input((1, 6, 6))
    with pytest.raises(SpecError, match="Did you mean 'softplus'"):
        b.apply("softpuls", x)
    with pytest.raises(SpecError, match="node 'swish1': beta must be a number above 0"):
        b.apply("swish", x, beta=0)
    with pytest.raises(UsageError, match=r"plugin 'misnamed' \(ringlet-curves 1.0\) does not fit"):
        b.apply("misnamed", x)


@pytest.mark.parametrize("kernels", available())
def test_gradients_are_right_numerically(kernels):
    replica = network(kernels=kernels)
    inputs, targets = batch()
    replica.loss_and_gradients(inputs, targets, scale=1.0)
    rng = np.random.default_rng(2)
    for name, view in replica.parameters.views.items():
        direction = rng.standard_normal(view.shape)
        found, step = float((replica.gradients.views[name] * direction).sum()), 1e-5
        view += step * direction
        above = replica.evaluate(inputs, targets).loss_sum
        view -= 2 * step * direction
        below = replica.evaluate(inputs, targets).loss_sum
        view += step * direction
        assert found == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8), name


def test_kernels_agree_in_both_precisions():
    precise = network()
    precise.loss_and_gradients(*batch())
    for kernels in available():
        rough = network("float32", kernels=kernels)
        rough.loss_and_gradients(*batch("float32"))
        np.testing.assert_allclose(rough.gradients.flat, precise.gradients.flat, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("engine", "dtype", "tolerance"), [("torch", "float64", 1e-7), ("keras", "float32", 1e-4)])
def test_engines_agree(engine, dtype, tolerance):
    choose_keras_backend()
    pytest.importorskip(engine, reason=f"needs the engine {engine}")
    judge, replica = network(dtype), network(dtype, engine)
    expected, found = (own.loss_and_gradients(*batch(dtype)) for own in (judge, replica))
    assert found.loss_sum == pytest.approx(expected.loss_sum, rel=tolerance)
    np.testing.assert_allclose(found.outputs, expected.outputs, rtol=0, atol=tolerance)
    difference = np.linalg.norm(replica.gradients.flat - judge.gradients.flat)
    assert difference < tolerance * np.linalg.norm(judge.gradients.flat)


def test_it_trains_and_what_it_learned_is_read_again(run, capsys):
    assert main(["evaluate", str(run), "--json"]) == 0, capsys.readouterr().err
    assert '"accuracy": 0.9' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "libraries"),
    [("openvino", ["openvino"]), ("onnx", ["onnx", "onnxruntime"]), ("torch", ["torch"]), ("keras", ["keras"])],
)
def test_exports_compute_the_same(run, tmp_path, target, libraries):
    choose_keras_backend()
    for library in libraries:
        pytest.importorskip(library, reason=f"needs {library}")
    parity = export_model(run, target, tmp_path, threads=1).parity
    assert parity.is_real
    assert parity.largest < 1e-5


def test_a_database_scores_with_it(run, tmp_path):
    pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'ringlet[openvino]'")
    duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'ringlet[database]'")
    from PIL import Image

    from ringlet.database import register

    artifact = export_model(run, "openvino", tmp_path, threads=1).artifact
    images, labels = load_dataset("digits").test.read(np.arange(40))
    with duckdb.connect() as connection, register(connection, threads=1, models={"curvy": artifact.files[0]}):
        connection.execute("create table shots (id integer, image blob)")
        for index, pixels in enumerate(images[:, 0]):
            file = io.BytesIO()
            Image.fromarray(np.rint(pixels * (255 / 16)).astype(np.uint8)).save(file, "PNG")
            connection.execute("insert into shots values (?, ?)", [index, file.getvalue()])
        query = "select p.label from (select id, ringlet_predict('curvy', image) as p from shots) order by id"
        found = [int(label) for (label,) in connection.execute(query).fetchall()]
    assert np.mean(np.array(found) == labels) > 0.8


def choose_keras_backend() -> None:
    """PyTorch's starts fastest; a backend that has been chosen before stays."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")
