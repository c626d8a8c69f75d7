"""Verbs whose output is lost: those that are there for it end as any program does, the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 120
OUTPUT_ONLY = [("models",), ("models", "--json"), ("--help",), ("train", "--help"), ("--version",)]
OUTPUT_ONLY += [("config", "schema"), ("completion", "bash"), ("datasets",)]
PIPE_ENDED = 128 + signal.SIGPIPE
TRAIN = ("train", "--model", "simplemlp", "--num-epochs", "2", "--steps-per-epoch", "3", "--run-dir", "out")


def run(arguments: tuple[str, ...], redirection: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    environment |= options.pop("environment", {})
    command = ["sh", "-c", f'exec "$0" "$@" {redirection}', sys.executable, "-m", "ringlet", *arguments]
    return subprocess.run(command, env=environment, text=True, stderr=subprocess.PIPE, timeout=LIMIT, **options)


def without_reader(arguments: tuple[str, ...], **options: object) -> subprocess.CompletedProcess[str]:
    """Its standard output is a pipe that no one reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(arguments, stdout=writer, **options)
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", OUTPUT_ONLY, ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_has_seen_enough_ends_a_list_quietly(arguments, unbuffered):
    done = without_reader(arguments, environment={"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (PIPE_ENDED, "")


@pytest.mark.parametrize("arguments", OUTPUT_ONLY, ids=" ".join)
def test_a_list_that_does_not_fit_on_the_disk_is_an_error(arguments):
    done = run(arguments, ">/dev/full")
    assert (done.returncode, done.stderr) == (1, "error: stdout cannot be written: No space left on device\n")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before_are_no_trouble(redirection):
    """And no file that the run opens takes their place."""
    done = run((*TRAIN, "--history-file", "history.json"), redirection)
    assert done.returncode == 0, done.stderr
    assert Path("out/model.safetensors").exists()
    for path in Path("out").rglob("*"):
        assert not path.is_file() or b"****" not in path.read_bytes()


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_run_says_once_that_its_results_are_not_shown(unbuffered):
    done = without_reader(TRAIN, environment={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 0
    told = "note: stdout cannot be written any more (Broken pipe): what follows is not shown"
    assert done.stderr.splitlines()[-1] == told
    assert "Exception" not in done.stderr
    assert Path("out/model.safetensors").exists()


def test_a_log_on_a_full_disk_goes_on_when_there_is_room(tmp_path):
    """What did not fit is missing, nothing else; a limit of file sizes stands for the disk."""
    code = (
        "import resource, sys, ringlet.output_streams as streams\n"
        "streams.install()\n"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "for limit in (most, 5, most):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))\n"
        "    print('abcd', flush=True)\n"
        "assert streams.losses[1].reason == 'File too large', streams.losses\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=log, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_bytes() == b"abcd\nabcd\n"


def test_a_slow_reader_of_a_pipe_that_does_not_wait_gets_everything(tmp_path):
    """Some terminals and remote shells hand down pipes that never block."""
    code = "import ringlet.output_streams as s\ns.install()\nfor _ in range(3000): print('x' * 99)\n"
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert len(stream.read()) == 300_000
    assert process.wait(LIMIT) == 0
