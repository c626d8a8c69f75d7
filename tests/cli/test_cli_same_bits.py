"""``ringlet train`` as a user starts it gives the same bits however many workers there are and however often it stops.

This is also what ``scripts/arm64.sh`` runs for another processor, so nothing here needs more than Ringlet itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet as package
from ringlet.comm.environments import VARIABLES
from ringlet.models.files import load_model_file

OPTIONS = (
    "--model",
    "simplecnn",
    "--shards",
    "2",
    "--local-batch-size",
    "96",
    "--learning-rate",
    "0.01",
    "--launcher",
    "local",
)


def ringlet(*words: str, timeout: float = 280) -> str:
    """Run the command line to its end; gives what it says about the run."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ringlet", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def bits(run: str) -> dict[str, bytes]:
    return {name: tensor.tobytes() for name, tensor in load_model_file(Path(run) / "model.safetensors").tensors.items()}


def events(run: str, kind: str) -> list[dict[str, object]]:
    lines = Path(run, "events.ndjson").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.timeout(900)
def test_two_workers_and_a_resumed_run_give_the_bits_of_one_worker_without_a_break() -> None:
    ringlet("train", "-n", "1", *OPTIONS, "--num-epochs", "2", "--run-dir", "alone")
    said = ringlet("train", "-n", "2", *OPTIONS, "--num-epochs", "1", "--run-dir", "together")
    assert "**** Workers: 2 (node)" in said
    assert bits("together") != bits("alone"), "an epoch changes nothing, so the next comparison would show nothing"
    ringlet("resume", "together", "--launcher", "local", "--num-epochs", "2")
    assert [event["num_workers"] for event in events("together", "run_resumed")] == [2]
    assert bits("together") == bits("alone")


def test_augmented_samples_and_their_partners_are_the_same_on_two_workers() -> None:
    changes = (
        "--mixup-images",
        "--cutmix-images",
        "--resized-crop-images",
        "--zoom-images",
        "--erase-images",
        "--blur-images",
    )
    for workers in ("1", "2"):
        small = ("--num-samples", "300", "--num-epochs", "1", "--run-dir", f"on{workers}")
        ringlet("train", "-n", workers, *OPTIONS, *small, *changes)
    assert bits("on1") == bits("on2")
    losses = [event["figures"] for event in events("on1", "epoch_finished")]
    assert losses == [event["figures"] for event in events("on2", "epoch_finished")]
    reports = [json.loads(Path(f"on{workers}/evaluation/report.json").read_text()) for workers in "12"]
    assert reports[0] == reports[1]
