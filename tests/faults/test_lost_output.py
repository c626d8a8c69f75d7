"""No one reads what a run prints any more, or its log is on a full disk: the run continues to its own end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from supervised import OPTIONS, Finished, stopped_process

STOP = "stop@rank=0,step=4,phase=forward,once"
LAUNCHED = {
    "alone": (),
    "supervised": ("-n", 1, "--launcher", "local", "--restarts", 1),
    "local": ("-n", 2, "--launcher", "local", "--restarts", 1),
    "mpi": ("-n", 2, "--launcher", "mpi", "--restarts", 1),
}
SHARDED = ("--shards", 2, "--run-dir", "run")


@pytest.fixture(params=LAUNCHED)
def words(request: pytest.FixtureRequest) -> tuple[object, ...]:
    """How the workers are started."""
    if request.param == "mpi":
        pytest.importorskip("mpi4py")
    return LAUNCHED[request.param]


def test_a_run_whose_reader_dies_ends_as_if_it_had_one(runs, undisturbed, words):
    job = runs.start("train", *words, *SHARDED, *OPTIONS, faults=[STOP])
    runs.go_on_without_reader(job)
    run = runs.finish(job)
    run.check_same_as(undisturbed())
    assert run.events("run_restarted") == []
    lost = {event["stream"]: event["reason"] for event in run.events("output_lost")}
    assert lost == ({} if words else {"stderr": "Broken pipe"})


def test_a_resumed_run_whose_reader_dies_ends_as_if_it_had_one(runs, undisturbed, words):
    runs.train(faults=["kill@rank=1,step=7,phase=forward"])
    job = runs.start("resume", "run", *words, faults=[STOP.replace("step=4", "step=8")])
    runs.go_on_without_reader(job)
    runs.finish(job).check_same_as(undisturbed())


def test_restarts_work_without_a_reader(runs, undisturbed):
    faults = [STOP, "kill@rank=1,step=7,phase=forward,once"]
    job = runs.start("train", *LAUNCHED["local"], *SHARDED, *OPTIONS, faults=faults)
    runs.go_on_without_reader(job)
    run = runs.finish(job)
    run.check_same_as(undisturbed())
    assert len(run.events("run_restarted")) == 1


def test_a_divergence_without_a_reader_keeps_its_exit_code(runs, words):
    nan = "nan@rank=0,step=6,phase=backward"
    job = runs.start("train", *words, *SHARDED, *OPTIONS, "--on-nan", "stop", faults=[STOP, nan])
    runs.go_on_without_reader(job)
    run = runs.finish(job)
    assert run.exit_code == 4
    assert run.events("run_ended")[0]["outcome"] == "diverged"


@pytest.mark.parametrize("streams", [">/dev/full 2>&1", "2>/dev/full", ">/dev/full"])
def test_a_full_disk_for_the_output_ends_nothing(begin, runs, undisturbed, words, streams):
    command = ["sh", "-c", f'exec "$0" "$@" {streams}', sys.executable, "-m", "ringlet", "train", *words, *SHARDED]
    job = begin([*map(str, command), *OPTIONS], cwd=runs.folder)
    runs.finish(job).check_same_as(undisturbed())


def test_a_document_that_nobody_gets_is_told_by_the_exit_code(begin, runs, undisturbed, words):
    train = ["train", *words, *SHARDED, *OPTIONS, "--json"]
    command = ["sh", "-c", 'exec "$0" "$@" >/dev/full', sys.executable, "-m", "ringlet", *map(str, train)]
    run = runs.finish(begin(command, cwd=runs.folder))
    assert run.exit_code == 1
    assert "stdout cannot be written: No space left on device" in run.stderr
    Finished(run.path, 0, run.stderr).check_same_as(undisturbed())


def test_the_document_of_a_dead_reader_ends_as_with_any_program(runs, words):
    job = runs.start("train", *words, *SHARDED, *OPTIONS, "--json", faults=[STOP])
    runs.go_on_without_reader(job)
    assert runs.finish(job).exit_code == 128 + signal.SIGPIPE


def test_a_signal_without_a_reader_saves_and_leaves(runs, undisturbed, words):
    job = runs.start("train", *words, *SHARDED, *OPTIONS, faults=[STOP])
    stopped_process(job)
    job.process.send_signal(signal.SIGTERM)
    runs.go_on_without_reader(job)
    run = runs.finish(job)
    assert run.exit_code == 5
    runs.resume("-n", 2).check_same_as(undisturbed())


def test_a_study_goes_on_without_a_reader(begin, tmp_path: Path):
    words = ["--model", "simplemlp", "--dataset", "synthetic", "--input-shape", "1,4,4", "--launcher", "local"]
    words += ["--steps", "4", "--batch", "8", "--num-samples", "80", "--epochs", "1", "-n", "1,2", "--repeats", "1"]
    job = begin([sys.executable, "-m", "ringlet", "study", *words, "--study-dir", "s"], cwd=tmp_path)
    job.wait_for("[1/2]", stream="stderr")
    for pipe in (job.process.stdout, job.process.stderr):
        pipe.close()
    job.process.stdout = job.process.stderr = None
    assert job.finish().returncode == 0
    document = json.loads((tmp_path / "s" / "study.json").read_text())
    assert [cell["workers"] for cell in document["cells"]] == [1, 2]
