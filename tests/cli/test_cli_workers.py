"""``ringlet train -n`` and ``ringlet bench``: real workers, started as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet as package
from ringlet.comm.environments import VARIABLES
from ringlet.config import RunConfig, gather
from ringlet.models.files import load_model_file
from ringlet.models.initializers import initialize

TIMEOUT = 120
SMALL = {"model": "simplemlp", "num_epochs": 1, "steps_per_epoch": 2}
SMALL_OPTIONS = [text for name, value in SMALL.items() for text in (f"--{name}", str(value))]


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process group of its own, which is gone when this returns."""
    ours = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ours |= {"PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "ringlet", *arguments],
        env=ours,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        pytest.fail(f"no end within {TIMEOUT} s\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


@pytest.mark.parametrize("launcher", ["local", "mpi"])
def test_two_workers_train_one_network_and_one_of_them_tells(launcher: str) -> None:
    short = ("--num-epochs", "2", "--run-dir", "run", "--launcher", launcher)
    outcome = call("train", "-n", "2", "--profile", "--timeline", "trace.json", *short, "--json")
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["num_workers"] == 2
    assert [len(own) > 5 for own in result["profile"]] == [True, True]
    assert outcome.stderr.count("**** Workers: 2") == 1
    assert outcome.stderr.count("Epoch 2/2") == 1
    assert "global batch of 128 samples in 2 shards" in outcome.stderr
    assert {path.name for path in Path("run").iterdir()} >= {"config.toml", "events.ndjson", "model.safetensors"}
    started = json.loads(Path("run/events.ndjson").read_text().splitlines()[0])
    assert (started["num_workers"], started["global_batch_size"], started["num_shards"]) == (2, 128, 2)
    assert {event["pid"] for event in json.loads(Path("trace.json").read_text())["traceEvents"]} == {0, 1}


def test_shards_give_the_same_tensors_on_one_and_on_three_workers() -> None:
    options = ("--shards", "3", "--num-epochs", "1", "--local-batch-size", "50")
    for count in ("1", "3"):
        outcome = call("train", "-n", count, *options, "--run-dir", f"run{count}")
        assert outcome.returncode == 0, outcome.stderr
    alone, together = (load_model_file(Path(run) / "model.safetensors").tensors for run in ("run1", "run3"))
    assert alone.keys() == together.keys()
    assert all(tensor.tobytes() == together[name].tobytes() for name, tensor in alone.items())


def test_scaled_learning_rates_are_printed() -> None:
    outcome = call("train", "-n", "2", "--num-epochs", "1", "--learning-rate-scaling", "--learning-rate", "0.01")
    assert outcome.returncode == 0, outcome.stderr
    assert "learning_rate: 0.02, that of one worker (0.01) times 2" in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "2", "--shards", "1"), "shards = 1, but 2 workers"),
        (("-n", "2", "--parallel", "sequential"), "parallel = sequential, but 2 workers"),
        (("-n", "2", "--hosts", "a;id:2"), "is no host name"),
        (("-n", "2", "--compression", "zip"), "unknown compression 'zip'"),
        (("-n", "2", "--local-batch-size", "3", "--global-batch-size", "7"), "contradict each other with 2 shards"),
    ],
)
def test_a_wrong_request_to_several_workers_is_told_once(arguments: tuple[str, ...], message: str) -> None:
    outcome = call("train", *arguments)
    assert outcome.returncode == 2
    assert outcome.stderr.count(message) == 1
    assert "Traceback" not in outcome.stderr
    assert not Path("runs").exists()


def test_bench_compares_collectives_in_a_table_as_json_and_as_a_plot() -> None:
    pytest.importorskip("matplotlib", reason="plots need Matplotlib: pip install 'ringlet[report]'")
    sizes = ("--sizes", "1k,64k", "--rounds", "1", "--collectives", "all")
    outcome = call("bench", *sizes, "--json", "--plot", "plot.png")
    assert outcome.returncode == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    found = {(entry["contender"], entry["collective"]) for entry in document["measurements"]}
    assert document["workers"] == 2
    assert {("ringlet", name) for name in ("allreduce", "broadcast", "allgather", "alltoall", "barrier")} <= found
    assert ("ringlet, shared arrays", "allreduce") in found
    assert all(entry.keys() >= {"num_bytes", "seconds", "bandwidth"} for entry in document["measurements"])
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG")
    table = call("bench", "-n", "1", "--launcher", "local", "--sizes", "1k", "--rounds", "1")
    assert table.returncode == 0, table.stderr
    assert "allreduce" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "many"), "size = 'many'"),
        (("--collectives", "allreduse"), "Did you mean 'allreduce'?"),
        (("--plot", "plot.exe"), "expected a name that ends in"),
    ],
)
def test_a_wrong_request_to_bench_starts_nothing(arguments: tuple[str, ...], message: str) -> None:
    outcome = call("bench", *arguments)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_resume_has_as_many_workers_as_the_run_had(ringlet):
    options = "--num-epochs 1 --steps-per-epoch 2 --local-batch-size 8 --launcher local --no-evaluate"
    assert ringlet("train", "-n", "2", "--run-dir", "run", *options.split()).code == 0

    def workers(*words: str) -> tuple[int, str]:
        outcome = ringlet("resume", "run", "--launcher", "local", *words)
        assert outcome.code == 0
        events = [json.loads(line) for line in Path("run/events.ndjson").read_text().splitlines()]
        return [event["num_workers"] for event in events if event["event"] == "run_resumed"][-1], outcome.stderr

    num_workers, said = workers("--num-epochs", "2")
    assert num_workers == 2
    assert "resuming with 2 workers, as before; -n changes that" in said
    assert workers("--num-epochs", "3", "-n", "1")[0] == 1


def test_workers_are_given_the_configuration_and_read_nothing_again(ringlet, monkeypatch):
    config = RunConfig(**SMALL, run_dir="out", input_shape=(1, 8, 8), lr_schedulers=("early_stopping",))
    text = json.dumps(config.to_dict())
    monkeypatch.setenv("RINGLET_NUM_EPOCHS", "7")
    monkeypatch.setenv("RINGLET_LEARNING_RATES", "1")
    done = ringlet("train", "--resolved", text, "--json")
    assert done.code == 0
    assert "RINGLET" not in done.stderr
    assert json.loads(done.stdout)["num_epochs"] == 1
    assert gather(Path("out/config.toml")).build() == config
    again = ringlet("train", "--resolved", text, "--resume", "auto", "--json")
    assert json.loads(again.stdout)["num_epochs"] == 0


def test_a_remark_about_the_environment_is_told_once_for_all_workers(tmp_path):
    done = call("train", "-n", "2", *SMALL_OPTIONS, "--run-dir", str(tmp_path / "run"), RINGLET_LEARNING_RATES="1")
    assert done.returncode == 0
    assert done.stderr.count("environment variable RINGLET_LEARNING_RATES is no option") == 1


@pytest.mark.parametrize("strategy", ["average:2", "softsync:2"])
def test_what_is_frozen_keeps_its_bits_on_three_workers_which_end_with_the_best_weights(ringlet, strategy):
    options = "--model vgg1bn --num-epochs 2 --steps-per-epoch 3 --local-batch-size 8 --launcher local --no-evaluate"
    rules = f"--freeze backbone --schedule model_checkpoint --strategy {strategy} --run-dir out --kernels reference"
    outcome = ringlet("train", "-n", "3", *options.split(), *rules.split())
    assert outcome.code == 0, outcome.stderr
    file = load_model_file("out/model.safetensors")
    first = initialize(file.spec, 0)
    assert {name for name in first if (first[name] != file.tensors[name]).any()} == {"dense2.weight", "dense2.bias"}
    assert "best" in file.metadata
