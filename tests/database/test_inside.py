"""What runs in a server's process, called from this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from pictures import SHOTS

from ringlet.database import inside, rows
from ringlet.database.rows import predict_rows
from ringlet.errors import ModelFileError, UsageError
from ringlet.inference import Predictor


@pytest.fixture
def opened(new_model, monkeypatch):
    """The SHA-256 of a model that this process has, as if it were a new one."""
    for name in (*inside._ONE_THREAD, "RINGLET_TUNING"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setattr(inside._Process, "cache", None)
    monkeypatch.setattr(inside._Process, "last", None)
    model = new_model("cars", "masks.xml")
    assert not inside.is_open(model.sha256)
    yield inside.open_model(model.sha256, "openvino", model.artifact.network, model.artifact.weights)
    inside._Process.cache.close()


def test_a_process_opens_a_model_once(opened, new_model):
    model = new_model("cars", "masks.xml")
    inside.open_model(opened, "openvino", model.artifact.network, model.artifact.weights)
    assert inside.is_open(opened)
    assert json.loads(inside.about("openvino"))["loads"] == 1


def test_one_call_for_every_column_predicts_once(opened, monkeypatch):
    calls = []
    monkeypatch.setattr(rows, "predict_rows", lambda *arguments: calls.append(1) or predict_rows(*arguments))
    results = [inside.predict(opened, bytes(bytearray(SHOTS[0]))) for _ in range(6)]
    assert len(calls) == 1
    inside.predict(opened, SHOTS[1])
    assert inside.predict(opened, SHOTS[0]) == results[0]
    assert len(calls) == 3


def test_a_batch_needs_an_id_for_every_image(opened, models):
    with Predictor(models / "masks.xml", threads=1) as predictor:
        shares = [found.share for found in predictor.predict(SHOTS)]
    found = inside.predict_batch(opened, range(len(SHOTS)), SHOTS)
    assert [(row["id"], row["share"]) for row in found] == list(enumerate(shares))
    with pytest.raises(UsageError, match="2 ids for 1 images"):
        inside.predict_batch(opened, [1, 2], SHOTS[:1])


def test_signals_are_blocked_only_while_a_model_is_opened(opened, new_model, monkeypatch):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    during = []
    monkeypatch.setattr("ringlet.database.models.stored_artifact", lambda *_: during.append(blocked()) or fail())
    with pytest.raises(ModelFileError):
        inside.open_model("another", "openvino", b"", None)
    assert {signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM} <= during[0]
    assert blocked() == before


def blocked():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def fail():
    raise ModelFileError("no")


def test_calls_without_a_model_or_a_directory_say_so(opened):
    with pytest.raises(UsageError, match="no model 'x' is installed"):
        inside.unknown("x")
    with pytest.raises(UsageError, match="not loaded"):
        inside.predict("0" * 64, SHOTS[0])
    with pytest.raises(UsageError, match="no directory is allowed"):
        inside.predict_file(opened, "a.png", None)


def test_importing_it_loads_no_library():
    program = "import sys; from ringlet.database import inside; print(*{'numpy', 'openvino', 'PIL'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_no_telemetry_is_loaded_with_a_model():
    program = (
        "import sys; from ringlet.database import inside; inside.about('openvino'); "
        "print(sys.modules.get('openvino_telemetry'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "None\n", done.stderr
