"""The Keras examples learn what they are meant to, on two ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import ringlet
from ringlet.comm.environments import VARIABLES

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK_IMPORTS = Path(__file__).parents[1] / "quick_imports"

pytestmark = pytest.mark.timeout(600)  # of two runs, on a machine that has other things to do


def run(backend: str, name: str, *options: object) -> str:
    """What the example printed."""
    if find_spec("keras") is None or find_spec(backend) is None:
        pytest.skip(f"needs Keras on {backend}: pip install keras {backend}")
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": backend,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(ringlet.__file__).parents[1]), str(QUICK_IMPORTS)]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
    }
    words = [EXAMPLES / name, *options]
    command = [sys.executable, "-m", "ringlet", "run", "-n", "2", "--launcher", "local", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figure(name: str, output: str) -> float:
    """The last line's figure of that name."""
    found = re.search(rf"^test loss .*\b{name} ([0-9.]+)$", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def test_the_mnist_network_learns_digits(tmp_path: Path) -> None:
    output = run("torch", "keras_mnist.py", "--save", tmp_path / "best.keras", "--fp16-allreduce")
    assert figure("accuracy", output) > 0.93
    assert zipfile.is_zipfile(tmp_path / "best.keras")


def test_the_mnist_network_learns_mnist(real_data: Path) -> None:
    options = ("--samples", 3000, "--epochs", 2, "--batch-size", 16)
    output = run("tensorflow", "keras_mnist.py", "--data", real_data / "mnist", *options)
    assert figure("accuracy", output) > 0.88
    assert "[rank 1]" not in output  # rank 0 alone shows progress


def test_the_unet_finds_cars_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    options = ["--size", 32, "--checkpoints", tmp_path / "checkpoints", "--save", tmp_path / "unet.keras"]
    first = run("torch", "keras_unet.py", *options, "--epochs", 6)
    assert "rank 0 reads images 0 to 120" in first
    assert "rank 1 reads images 120 to 240" in first
    assert "going on" not in first
    newest = max(int(path.stem.split("-")[1]) for path in (tmp_path / "checkpoints").iterdir())
    again = run("torch", "keras_unet.py", *options, "--epochs", 2)
    assert f"going on after epoch {newest}" in again
    assert f"Epoch {newest + 1}/{newest + 2}" in again
    assert figure("dice", again) > 0.8
    with zipfile.ZipFile(tmp_path / "unet.keras") as saved:
        assert not json.loads(saved.read("config.json"))["compile_config"]
