"""``ringlet plan``: what it prints and draws, what it refuses, and a real measurement."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ringlet.planning import measuring
from ringlet.planning.advice import CAUSES

DESCRIBED = (
    "plan",
    "--model",
    "simplecnn",
    "--dataset",
    "mnist",
    "--compute-seconds",
    "10ms",
    "--local-batch-size",
    "32",
)


@pytest.fixture
def no_measurement(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("measured without being asked to")

    monkeypatch.setattr(measuring, "run", refuse)


@pytest.fixture
def document(ringlet, no_measurement):
    def call(*more: str):
        outcome = ringlet(*DESCRIBED, "--json", *more)
        assert outcome.code == 0, outcome.stderr
        return json.loads(outcome.stdout)

    return call


def test_a_plan_goes_from_one_to_4096_workers(document):
    found = document("--workers-per-machine", "4")
    assert [row["workers"] for row in found["workers"]] == [1 << power for power in range(13)]
    assert [row["machines"] for row in found["workers"][:5]] == [1, 1, 1, 2, 4]
    assert found["num_samples"] == 54_000
    assert found["workers"][0]["steps_per_epoch"] == -(-54_000 // 32)
    assert all(row["binds"] in CAUSES for row in found["workers"])
    assert found["machine"]["measured"] is False


def test_parts_add_up_to_the_step(document):
    for row in document("--network", "1gbe", "--variation", "0.1")["workers"]:
        assert sum(row["parts"].values()) == pytest.approx(row["step_seconds"])
        assert sum(row["memory"].values()) == 2 * row["memory"]["total"]


def test_options_of_the_run_change_the_plan(document):
    plain = document("--optimizer", "sgd", "--workers", "4", "--network", "1gbe", "--overlap", "off")
    row = plain["workers"][0]
    assert row["memory"]["optimizer"] == 0
    less = document(
        "--optimizer", "sgd", "--workers", "4", "--network", "1gbe", "--compression", "fp16", "--overlap=off"
    )
    assert less["workers"][0]["network_bytes"] < row["network_bytes"]
    rare = document("--optimizer", "sgd", "--workers", "4", "--network", "1gbe", "--strategy", "average:10")
    assert rare["workers"][0]["step_seconds"] < row["step_seconds"]


def test_sample_seconds_flops_and_compute_seconds_agree(ringlet, no_measurement):
    base = (
        "plan",
        "--model",
        "simplecnn",
        "--dataset",
        "mnist",
        "--local-batch-size",
        "32",
        "--workers",
        "1",
        "--json",
    )
    ways = ("--compute-seconds", "3.2ms"), ("--sample-seconds", "100us")
    steps = [json.loads(ringlet(*base, *given).stdout)["workers"][0]["step_seconds"] for given in ways]
    document = json.loads(ringlet(*base, "--flops", "1e9").stdout)
    assert steps == pytest.approx([3.2e-3, 3.2e-3])
    assert document["workers"][0]["step_seconds"] == pytest.approx(32 * document["training_flops"] / 1e9)


def test_a_network_file_is_read_and_options_win(document, tmp_path):
    (tmp_path / "net.toml").write_text(
        'network = "25gbe"\nlatency = "7us"\nworkers-per-machine = 8\nefficiency = 0.8\nlocal_bandwidth = "50GB/s"\n'
    )
    found = document("--network-file", "net.toml", "--latency", "9us")["network"]
    assert found["latency"] == pytest.approx(9e-6)
    assert (found["bandwidth"], found["efficiency"], found["workers_per_machine"]) == (3.125e9, 0.8, 8)
    assert found["local_bandwidth"] == 50e9


def test_the_piped_table_is_plain_text(ringlet, no_measurement):
    outcome = ringlet(*DESCRIBED, "--workers", "1,2,64")
    assert outcome.code == 0
    assert "\x1b" not in outcome.stdout + outcome.stderr
    assert "Recommended: " in outcome.stdout
    assert "What binds: " in outcome.stdout
    rows = [line for line in outcome.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip(" *") for row in rows[1:]] == ["1", "2", "64"]
    assert sum("*" in row.split("│")[1] for row in rows) == 1
    assert "not at hand" in outcome.stderr


def told_under_load(ringlet, monkeypatch, two_at_once: list[float]) -> str:
    """What a plan says where turns of the measurement gave these times of a pass; alone it took 10 ms in all."""
    from scenarios import measured

    machine = measured(turns={1: [0.010] * 3, 2: two_at_once})
    monkeypatch.setattr(measuring, "measure_speed", lambda *_, **__: machine)
    outcome = ringlet(*DESCRIBED[:5], "--local-batch-size", "32", "--workers", "1,2", "--workers-per-machine", "2")
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_under_load_the_verdict_has_its_range_and_says_how_sure_it_is(ringlet, monkeypatch):
    shown = told_under_load(ringlet, monkeypatch, [0.010, 0.012, 0.020])
    assert re.search(r"Speed-up of 2 workers: 1\.\d\dx, between (0\.|1\.0)\d+x and [12]\.\d\dx by single turns", shown)
    assert "changed by ± 42% while it was measured" in shown
    assert "so is whether they are worth it" in shown


def test_on_a_quiet_machine_the_verdict_is_short(ringlet, monkeypatch):
    shown = told_under_load(ringlet, monkeypatch, [0.011, 0.0112, 0.0111])
    assert "How sure" not in shown
    assert "between" not in shown


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_plot_is_drawn(ringlet, no_measurement, tmp_path, ending):
    pytest.importorskip("matplotlib", reason="plots need Matplotlib: pip install 'ringlet[report]'")
    outcome = ringlet(*DESCRIBED, "--plot", f"plan.{ending}", "--workers", "1,2,4")
    assert outcome.code == 0, outcome.stderr
    content = (tmp_path / f"plan.{ending}").read_bytes()
    assert content[:8].startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--no-measure",), "--sample-seconds"),
        (("--no-measure", "--variation", "0.1"), "--compute-seconds"),
        (("--variation", "0.1"), "variation is measured"),
        (("--compute-seconds", "1ms", "--flops", "1e9"), "give one of them"),
        (("--compute-seconds", "0"), "expected more than 0"),
        (("--compute-seconds", "soon"), "expected a time such as 20us"),
        (("--compute-seconds", "1ms", "--network", "25gb"), "Did you mean '25gbe'?"),
        (("--compute-seconds", "1ms", "--bandwidth", "25"), "expected a rate such as 25Gbit/s"),
        (("--compute-seconds", "1ms", "--algorithm", "rings"), "Did you mean 'ring'?"),
        (("--compute-seconds", "1ms", "--workers", "1,x"), "'x' is no number"),
        (("--compute-seconds", "1ms", "--workers", "0"), "expected numbers from 1"),
        (("--compute-seconds", "1ms", "--strategy", "async"), "average:K"),
        (("--compute-seconds", "1ms", "--compression", "zip"), "unknown compression"),
        (("--compute-seconds", "1ms", "--local-batch-size", "8", "--global-batch-size", "8"), "give one of them"),
        (("--compute-seconds", "1ms", "--min-efficiency", "7"), "at most 1"),
        (("--compute-seconds", "1ms", "--network-file", "none.toml"), "does not exist"),
        (("--compute-seconds", "1ms", "--plot", "plan.jpg"), "expected a name that ends in"),
        (("--compute-seconds", "1ms", "--model", "simplecn"), "Did you mean 'simplecnn'?"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, no_measurement, arguments, message):
    outcome = ringlet("plan", "--dataset", "mnist", "--model", "simplecnn", *arguments)
    assert (outcome.code, message in outcome.stderr) == (2, True), outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("line", ["speed = 3", "latency = 3", "workers_per_machine = 'two'"])
def test_a_wrong_network_file_is_refused(ringlet, no_measurement, tmp_path, line):
    (tmp_path / "net.toml").write_text(line)
    outcome = ringlet(*DESCRIBED, "--network-file", "net.toml")
    assert outcome.code == 2
    assert "network file 'net.toml'" in outcome.stderr


def test_numbers_of_workers_that_are_measured():
    assert [measuring.worker_counts(most) for most in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]


def test_a_real_machine_is_measured_and_planned(tmp_path):
    """Two ranks measure for a moment; a fixed global batch needs a second batch size."""
    command = [sys.executable, "-m", "ringlet", "plan", "--model", "simplemlp", "--dataset", "digits", "--json"]
    command += ["--global-batch-size", "64", "--measure-seconds", "0.4", "--workers-per-machine", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RINGLET_TUNING": "off"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    machine, rows = document["machine"], document["workers"]
    assert machine["measured"] is True
    assert set(machine["pass_seconds"]) <= {"1", "2"}
    assert all(0 < seconds < 1 for seconds in machine["pass_seconds"].values())
    assert machine["other_batch"][0] != machine["local_batch_size"]
    assert all(seconds > 0 for points in machine["exchange_seconds"].values() for _, seconds in points)
    assert machine["process_bytes"] > 10 << 20
    assert rows[0]["parts"]["latency"] == rows[0]["parts"]["transfer"] == rows[0]["network_bytes"] == 0
    assert rows[1]["shared_bytes"] > 0
    assert rows[-1]["workers"] == 4096
    assert rows[-1]["binds"] == "samples"
    assert list(Path(tmp_path).iterdir()) == []
