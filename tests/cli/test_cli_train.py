"""``ringlet train``: option lines, outputs, exit codes, and what is left on disk."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringlet.errors import EXIT_DIVERGED, EXIT_INTERRUPTED

SMALL = ("train", "--model", "simplecnn", "--num-epochs", "2", "--steps-per-epoch", "3", "--kernels", "reference")


def test_train_prints_a_summary_and_changed_options_on_stderr_and_results_on_stdout(ringlet):
    outcome = ringlet(*SMALL)
    assert outcome.code == 0
    assert "**** Model simplecnn: 5,850 parameters\n  10 layers, " in outcome.stderr
    assert "│" not in outcome.stderr  # the table of layers
    assert re.search(r"^  model.name +: simplecnn$", outcome.stderr, re.MULTILINE)
    assert "optimizer.beta1" not in outcome.stderr  # a default
    assert [line.split(":")[0] for line in outcome.stdout.splitlines()] == ["Time", "Throughput", "Model", "Test"]


def test_verbose_shows_every_layer_and_every_option_that_is_set(ringlet):
    text = ringlet(*SMALL, "--verbose").stderr
    assert re.search(r"│\s+1\s+│\s+Conv2D\s+│\s+40\s+│\s+\(4, 6, 6\)", text)
    assert re.search(r"^  optimizer.name +: adam$", text, re.MULTILINE)
    assert re.search(r"^  optimizer.beta1 +: 0.9$", text, re.MULTILINE)


def test_json_is_one_document(ringlet):
    result = json.loads(ringlet(*SMALL, "--json").stdout)
    assert result["num_steps"] == 6
    assert result["num_samples"] == 6 * 64
    assert set(result["test"]) == {"accuracy", "loss"}
    assert len(result["epochs"]) == 2


@pytest.mark.parametrize("separator", ["-", "_"])
def test_dashes_and_underscores_are_the_same(ringlet, separator):
    option = "--batch-size=16".replace("-size", f"{separator}size")
    assert json.loads(ringlet(*SMALL, option, "--json").stdout)["num_samples"] == 6 * 16


@pytest.mark.parametrize(("flag", "value"), [("--exact", True), ("--exact=True", True), ("--no-exact", False)])
def test_flags_are_given_alone_negated_or_with_a_value(ringlet, flag, value):
    assert ringlet(*SMALL, flag, "--run-dir", "out").code == 0
    assert f"exact = {str(value).lower()}" in Path("out/config.toml").read_text()


def test_the_option_line_of_pydtnn_trains_on_real_mnist(ringlet, real_data):
    folder = real_data / "mnist"
    outcome = ringlet(
        "train",
        "--model=simplecnn",
        "--dataset=mnist",
        f"--dataset_train_path={folder}",
        f"--dataset_test_path={folder}",
        "--batch_size=64",
        "--validation_split=0.2",
        "--num_epochs=10",
        "--optimizer=Adam",
        "--learning_rate=0.01",
        "--loss_func=categorical_accuracy,categorical_cross_entropy",
        "--parallel=data",
        "--blocking_mpi",
        "--dtype=float32",
        "--evaluate",
        *("--num_epochs=1", "--steps_per_epoch=2", "--json"),
    )
    result = json.loads(outcome.stdout)
    assert outcome.code == 0
    assert result["num_parameters"] == 149_210
    assert result["num_samples"] == 128
    assert set(result["test_before"]) == {"accuracy", "loss"}
    assert "Before training: test_acc: " in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trian",), "unknown command 'trian'. Did you mean 'train'?"),
        (("train", "--leraning-rate", "1"), "unknown option '--leraning-rate'. Did you mean '--learning-rate'?"),
        (("train", "--learning_rate"), "requires an argument"),
        (("train", "extra"), "extra"),
        (("train", "--model", "simplecn"), "unknown model 'simplecn'. Did you mean 'simplecnn'?"),
        (("train", "--dataset", "digit"), "unknown data set 'digit'. Did you mean 'digits'?"),
        (("train", "--optimizer", "adm"), "unknown optimizer 'adm'. Did you mean 'adam'?"),
        (("train", "--batch-size", "0"), "--batch-size: 0 is out of range, expected at least 1"),
        (("train", "--learning-rate", "1e999"), "--learning-rate: inf is not a finite number"),
        (("train", "--learning-rate", "nan"), "--learning-rate: nan is not a finite number"),
        (("train", "--seed", "x"), "--seed: expected a whole number, received 'x'"),
        (("train", "--input-shape", "3,-1,4"), "--input-shape: 3,-1,4: expected"),
        (("train", "--blocking_mpi", "--non_blocking_mpi"), "contradict each other"),
        (("train", "--config", "none.toml"), "'none.toml' does not exist"),
        (("train", "--kernels", "fast"), "--kernels: 'fast' is not known"),
        (("train", "--model", "unet"), "one class per image"),
        (("train", "--lr-schedulers", "warmap"), "Did you mean 'warm_up'?"),
        (("train", "--model", "resnet21"), "resnet18, resnet20, resnet32"),
        (("train", "--evaluate=maybe"), "--evaluate: expected true or false, received 'maybe'"),
        (("train", "--validation-split", "0.0001"), "leaves 1437 for training and 0 for validation"),
        (("train", "--num-samples", "5000"), "'digits' has 1437 training samples"),
        (("train", "--dataset", "npz"), "give 'npz:PATH'"),
        (("train", "--input-shape", "3,8,8"), "leave input_shape out"),
        (("train", "--run-dir", "/dev/null/run"), "'/dev/null' is not a folder. Choose another with --run-dir"),
        (("train", "--momentum", "1"), "--momentum: 1.0 is out of range, expected less than 1"),
    ],
)
def test_a_wrong_line_is_one_clear_message_with_code_2_and_leaves_nothing(ringlet, arguments, message):
    outcome = ringlet(*arguments)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == ""
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_damaged_data_are_refused_and_leave_nothing(ringlet, tmp_path, name):
    data = tmp_path / "data"
    data.mkdir()
    for file in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (data / file).write_bytes(b"\0\0\x08\x03" + b"\x7f" * 12)
    outcome = ringlet("train", "--dataset", "mnist", "--dataset-path", str(data))
    assert outcome.code == 1
    assert outcome.stderr.startswith("error: ")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("option", ["--run-dir", "--history-file"])
def test_an_unwritable_folder_is_refused_before_training(ringlet, option, monkeypatch):
    Path("closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "closed")  # an administrator may write everywhere
    outcome = ringlet("train", option, "closed/new")
    assert outcome.code == 2
    assert "'closed' is not writable" in outcome.stderr
    assert [path.name for path in Path().rglob("*")] == ["closed"]


def test_a_file_that_is_no_image_is_named_without_internals(ringlet, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "x.png").write_text("no image")
    outcome = ringlet("train", "--dataset", f"folder:{tmp_path / 'images'}")
    assert outcome.code == 1
    assert "a/x.png: not a readable image: the content is none of PNG, JPEG" in outcome.stderr
    assert "0x" not in outcome.stderr
    assert list(Path().iterdir()) == []


def test_a_truncated_mnist_file_is_refused_and_leaves_nothing(ringlet, real_data, tmp_path):
    for file in (real_data / "mnist").iterdir():
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[: len(content) * 9 // 10])
    outcome = ringlet("train", "--dataset", "mnist", "--dataset-path", str(tmp_path))
    assert outcome.code == 1
    assert re.match(r"error: \S+-ubyte\.gz: ", outcome.stderr)
    assert list(Path().iterdir()) == []


def test_an_option_that_the_optimizer_lacks_is_noted(ringlet):
    outcome = ringlet(*SMALL, "--optimizer", "rmsprop", "--momentum", "0.9", "--rho", "0.95")
    assert "note: momentum: no effect, optimizer 'rmsprop' has no such option" in outcome.stderr
    assert "note: rho" not in outcome.stderr


def test_divergence_has_its_own_exit_code_and_place(ringlet):
    outcome = ringlet(*SMALL, "--optimizer", "sgd", "--learning-rate", "1e30", "--run-dir", "out")
    assert outcome.code == EXIT_DIVERGED
    assert re.search(r"error: training diverged in epoch 1, step \d", outcome.stderr)
    assert not Path("out/model.safetensors").exists()


def test_options_beat_environment_and_file(ringlet, monkeypatch):
    Path("run.toml").write_text("seed = 1\nbatch_size = 8\n")
    monkeypatch.setenv("RINGLET_SEED", "2")
    assert ringlet(*SMALL, "--config", "run.toml", "--run-dir", "out").code == 0
    text = Path("out/config.toml").read_text()
    assert "seed = 2\n" in text
    assert "local_batch_size = 8\n" in text


def test_a_written_configuration_repeats_the_run(ringlet):
    first = json.loads(ringlet(*SMALL, "--seed", "5", "--run-dir", "one", "--json").stdout)
    second = json.loads(ringlet("train", "--config", "one/config.toml", "--run-dir", "two", "--json").stdout)
    assert first["epochs"] == second["epochs"]


def test_options_without_effect_are_noted(ringlet):
    assert "note: enable_gpu: no effect" in ringlet(*SMALL, "--enable_gpu").stderr


def test_escapes_in_names_never_reach_the_terminal(ringlet):
    outcome = ringlet("train", "--dataset", "npz:\x1b[31mred\x07.npz")
    assert outcome.code != 0
    assert "\x1b[31m" not in outcome.stderr
    assert "\x07" not in outcome.stderr


def test_escapes_in_the_run_directory_never_reach_the_terminal(ringlet):
    outcome = ringlet(*SMALL, "--run-dir", "\x1b[31mred")
    assert outcome.code == 0
    assert "\x1b[31m" not in outcome.stdout + outcome.stderr


def test_rich_markup_in_names_is_text(ringlet):
    assert "[bold]x[/bold]" in ringlet("train", "--model", "[bold]x[/bold]").stderr


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ringlet", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_an_interrupted_process_saves_and_leaves_with_code_5():
    process = start(
        "train", "--model", "simplecnn", "--num-epochs", "100000", "--kernels", "reference", "--run-dir", "out"
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("Epoch "):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert "interrupted: SIGINT received in epoch" in errors
    assert "Traceback" not in errors
    assert Path("out/model.safetensors").is_file()


def test_piped_output_has_no_escapes_and_no_bar():
    process = start(*SMALL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "\x1b" not in output + errors
    assert "Epoch 1/2: 192 samples in" in errors
    assert "\r" not in errors


def test_an_unexpected_exception_keeps_its_traceback_and_code_1():
    broken = (
        "import ringlet.cli.main as m, ringlet.cli.models as v\ndef f(*a): raise RuntimeError('boom')\nv._list = f\n"
    )
    code = f"{broken}import sys; sys.exit(m.main(['models']))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: boom" in done.stderr
