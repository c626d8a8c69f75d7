"""Ctrl-C: a real SIGINT ends a verb with its exit code, one line and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ringlet.errors import EXIT_INTERRUPTED

LIMIT = 60


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-u", "-m", "ringlet", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C; gives the exit code and what was said after that."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert "Traceback" not in errors
    return process.returncode, errors


@pytest.mark.parametrize("num_epochs", ["100000"])
def test_train_says_one_epoch_in_both_places(num_epochs):
    process = start("train", "--num-epochs", num_epochs, "--kernels", "reference", "--run-dir", "out")
    assert process.stderr is not None
    while not process.stderr.readline().startswith("**** Data set"):
        assert process.poll() is None
    process.stderr.readline()
    code, errors = interrupted(process)
    assert code == EXIT_INTERRUPTED
    lines = errors.splitlines()
    stopped = next(line for line in lines if line.startswith("Stopped in epoch "))
    last = next(line for line in lines if line.startswith("interrupted: "))
    assert stopped.split("epoch ")[1].split()[0] == last.split("epoch ")[1].split()[0]
    assert len([line for line in lines if line.startswith("interrupted: ")]) == 1


def test_before_anything_is_loaded_nothing_is_said():
    """The import system is asked for the command line: Ctrl-C is pressed at that moment."""
    code = (
        "import os, signal, sys, ringlet.__main__\n"
        "class Press:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'ringlet.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "ringlet.__main__.main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=LIMIT)
    assert (process.returncode, process.stdout, process.stderr) == (-signal.SIGINT, b"", b"")


def test_predict_stops_at_once():
    from ringlet.cli.main import main

    small = ("--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "1", "--kernels", "reference")
    assert main(["train", *small, "--run-dir", "out"]) == 0
    pipe = Path("images.txt")
    os.mkfifo(pipe)
    process = start("predict", "out", f"@{pipe}")
    with pipe.open("w"):  # opens when the process reads: it is at work, and waits for the list
        code, errors = interrupted(process)
    assert code == 130
    assert errors.splitlines() == ["interrupted: stopped at once; unfinished files were removed"]


def test_a_fetch_keeps_what_has_arrived(http_server):
    gate, reached = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        gate.wait(LIMIT)

    http_server.files["train-images-idx3-ubyte.gz"] = np.zeros(1 << 20, np.uint8).tobytes()
    http_server.files["train-labels-idx1-ubyte.gz"] = b"x" * 1000
    http_server.after_half = wait
    process = start("datasets", "fetch", "mnist", "--base-url", http_server.url)
    assert reached.wait(LIMIT)
    code, errors = interrupted(process)
    gate.set()
    assert code == EXIT_INTERRUPTED
    assert errors.splitlines()[-1].startswith("interrupted: what has arrived is kept")


def test_run_ends_its_workers():
    Path("wait.py").write_text(
        "import signal, sys\nprint('ready', file=sys.stderr, flush=True)\nwhile True: signal.pause()\n"
    )
    process = start("run", "-n", "2", "--launcher", "local", "wait.py")
    assert process.stderr is not None
    for _ in range(2):
        assert "ready" in process.stderr.readline()
    code, errors = interrupted(process)
    assert (code, errors) == (130, "interrupted: all workers have ended\n")
