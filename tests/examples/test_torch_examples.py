"""The PyTorch examples on two real ranks: each must reach an accuracy, with real data too where it is at hand."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet
from ringlet.comm.environments import VARIABLES

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, *arguments: object) -> tuple[list[str], float]:
    """What two ranks of an example print, and the last accuracy among it."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(ringlet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ringlet", "run", "-n", "2", "--launcher", "local", str(EXAMPLES / example)]
    ended = subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines(), float(re.findall(r"accuracy (\d\.\d+)", ended.stdout)[-1])


def test_mnist_saves_and_goes_on_where_it_was(tmp_path: Path) -> None:
    lines, first = run("torch_mnist.py", "--epochs", 2, "--checkpoints", tmp_path)
    assert [line.split(":")[0] for line in lines] == [f"epoch {epoch} of 2" for epoch in range(1, 3)]
    lines, accuracy = run("torch_mnist.py", "--epochs", 6, "--checkpoints", tmp_path)
    assert [line.split(":")[0] for line in lines] == [f"epoch {epoch} of 6" for epoch in range(3, 7)]
    assert accuracy >= 0.9
    assert accuracy >= first
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"epoch-{n:04d}.safetensors" for n in range(1, 7)]


def test_mnist_on_real_data_with_gradients_of_16_bits(real_data: Path) -> None:
    _, accuracy = run(
        "torch_mnist.py", "--data", real_data / "mnist", "--samples", 8000, "--epochs", 1, "--fp16-allreduce"
    )
    assert accuracy >= 0.85


def test_stock_ddp() -> None:
    _, accuracy = run("ddp_mnist.py")
    assert accuracy >= 0.93


def test_stock_ddp_on_real_data(real_data: Path) -> None:
    options = ("--samples", 3000, "--epochs", 1, "--batch-size", 16)
    _, accuracy = run("ddp_mnist.py", "--data", real_data / "mnist", *options)
    assert accuracy >= 0.92


def test_vgg19_learns_synthetic_images_and_saves_its_best(tmp_path: Path) -> None:
    options = ("--width", 0.125, "--samples", 1280, "--epochs", 2, "--batch-size", 32)
    lines, accuracy = run("torch_vgg19_cifar10.py", *options, "--save", tmp_path / "best.safetensors")
    assert lines[0] == "315,698 parameters; 1280 synthetic images, as no CIFAR-10 was given; 2 ranks"
    assert accuracy >= 0.9
    assert (tmp_path / "best.safetensors").is_file()


def test_vgg19_learns_from_real_images(real_data: Path) -> None:
    """A tenth is chance; a small network and a few thousand images for some seconds."""
    options = ("--width", 0.125, "--samples", 2560, "--test-samples", 1000, "--epochs", 2, "--batch-size", 32)
    _, accuracy = run("torch_vgg19_cifar10.py", "--data", real_data / "cifar-10-batches-bin", *options)
    assert accuracy >= 0.2


def test_vgg19_is_that_of_the_studies() -> None:
    specification = importlib.util.spec_from_file_location("vgg19_example", EXAMPLES / "torch_vgg19_cifar10.py")
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    assert sum(parameter.numel() for parameter in example.vgg19_bn().parameters()) == 20_040_522
