"""What newcomers do wrong, and what they read then: one error that says what was wrong and how to mend it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from ringlet.cli.main import main

MISTAKES = [
    # wrong paths
    (
        "train --dataset folder:nowhere",
        1,
        "nowhere is not a folder: expected one with a folder of images for",
    ),
    ("train --dataset folder:empty", 1, "expected CLASS/*.png"),
    ("train --dataset npz:text.txt", 1, "text.txt: not a readable npz file"),
    (
        "train --dataset cifar10",
        1,
        "fetch cifar10', or give the folder that has its files: --dataset-path FOLDER",
    ),
    ("train --timeline nowhere/t.json", 2, "folder 'nowhere' does not exist. Make it first"),
    ("train --hostfile nowhere.txt", 2, "host file 'nowhere.txt' cannot be read"),
    ("run nowhere.py", 2, "script 'nowhere.py' is no file: give the path of a Python script"),
    (
        "run -np 2 python3 -c pass",
        2,
        "expected a script, or -m and a module, with no options of Python but -B",
    ),
    ("predict out nowhere.png", 1, "cannot read nowhere.png: No such file or directory. Check the path"),
    ("predict out empty", 1, "no images in folder 'empty': expected files that end in .png"),
    # the wrong kind of file
    ("evaluate text.txt", 1, "Give a run directory, or the .safetensors file in it"),
    ("evaluate empty", 1, "empty/model.safetensors: No such file or directory"),
    ("export empty --to onnx", 1, "there is no file 'empty/model.safetensors'"),
    ("predict text.txt text.txt", 2, "expected a run directory or a file that ends in .safetensors"),
    ("resume out/model.safetensors", 2, "is no run directory: it has no config.toml"),
    ("checkpoints text.txt", 2, "give the run directory that `ringlet train` wrote"),
    ("train --config out", 2, "is a folder: give the file, such as 'out/config.toml'"),
    ("train out/model.safetensors", 2, "it is no text. Give the file that `ringlet init` wrote"),
    ("train --run-dir out", 2, "Choose another with --run-dir, or delete it; `ringlet resume out` resumes"),
    # typing errors
    ("tarin", 2, "unknown command 'tarin'. Did you mean 'train'?"),
    ("datasets mnist", 2, "Did you mean `ringlet datasets fetch mnist` or `ringlet datasets inspect mnist`?"),
    ("sql scor duckdb:x", 2, "unknown command 'scor'. Did you mean 'score'?"),
    ("train --num_epoch 3", 2, "unknown option '--num-epoch'. Did you mean '--num-epochs'?"),
    ("train --model resnt50", 2, "Did you mean 'resnet50'?"),
    ("train --model resnet21", 2, "Did you mean 'resnet20'?"),
    ("train --model resnet51", 2, "Did you mean 'resnet50'?"),
    ("train --dataset minst", 2, "unknown data set 'minst'. Did you mean 'mnist'?"),
    ("train --metrics acc", 2, "unknown metric 'acc'. Did you mean 'accuracy'?"),
    ("train --strategy avg", 2, "unknown strategy 'avg'. Did you mean 'average'?"),
    ("export out --to pytorch", 2, "unknown target 'pytorch'. Did you mean 'torch'?"),
    ("train -n 2 --launcher mpii", 2, "unknown launcher 'mpii'. Did you mean 'mpi'?"),
    # values
    ("train -n x", 2, "--num-workers: expected a whole number, received 'x'"),
    ("train -n 0", 2, "--num-workers: expected at least 1, received '0'"),
    ("bench --rounds=many", 2, "--rounds: expected a whole number, received 'many'"),
    ("predict out x.png --threshold high", 2, "--threshold: expected a number, received 'high'"),
    ("bench --sizes 1x", 2, "expected bytes such as 1024, 256k or 64M"),
    ("train --local-batch-size 8 --global-batch-size 9", 2, "contradict each other with 1 shard: give one of them"),
    ("doctor x", 2, "unexpected argument 'x'"),
    ("predict out", 2, "Missing argument 'INPUTS'"),
    ("run", 2, "there is nothing to run: give a script or -m and a module"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory."""
    path = tmp_path_factory.mktemp("trained") / "out"
    small = ("--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "1", "--kernels", "reference")
    assert main(["train", *small, "--run-dir", str(path)]) == 0
    return path


@pytest.fixture
def prepared(own_folder: Path, trained: Path) -> Path:
    """A folder with what newcomers mix up."""
    shutil.copytree(trained, "out")
    Path("empty").mkdir()
    Path("text.txt").write_text("hello")
    return own_folder


@pytest.mark.parametrize(("line", "code", "remedy"), MISTAKES)
def test_a_mistake_is_told_with_its_remedy(ringlet, prepared, line, code, remedy):
    before = sorted(prepared.rglob("*"))
    outcome = ringlet(*line.split())
    assert (outcome.code, remedy in outcome.stderr) == (code, True), outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert "Traceback" not in outcome.stderr
    assert sorted(prepared.rglob("*")) == before


@pytest.mark.parametrize(
    ("module", "line", "extra"),
    [
        ("onnx", "export out --to onnx", "onnx"),
        ("torch", "train --engine torch", "torch"),
        ("duckdb", "sql list duckdb:x.db", "database"),
    ],
)
def test_a_missing_extra_is_named(ringlet, prepared, monkeypatch, module, line, extra):
    monkeypatch.setitem(sys.modules, module, None)
    outcome = ringlet(*line.split())
    assert outcome.code == 2
    assert f'pip install "ringlet[{extra}]"' in outcome.stderr


def test_a_launcher_that_is_not_there_is_named(ringlet, prepared, monkeypatch):
    monkeypatch.setenv("RINGLET_MPIEXEC", "/nowhere/mpiexec")
    outcome = ringlet("train", "-n", "2", "--launcher", "mpi")
    assert outcome.code == 2
    assert "/nowhere/mpiexec" in outcome.stderr
    assert "Traceback" not in outcome.stderr
