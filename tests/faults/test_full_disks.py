"""Real runs on a small disk that becomes full and has room again: nothing but what was written then is missing."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from supervised import OPTIONS, Finished, stopped_process, wait_until

from ringlet.checkpoint import CheckpointStore
from ringlet.models.files import load_model_file

NUM_EPOCHS, NUM_STEPS = 8, 40
CHANGED = ("--num-epochs", NUM_EPOCHS, "--keep", 0, "--checkpoint-every", "3 steps")
LONG = (*OPTIONS, *CHANGED, "--shards", 2, "--run-dir", "disk/run")
LAUNCHED = {"alone": (), "local": ("-n", 2, "--launcher", "local", "--restarts", 1)}


class Disk:
    """A small file system."""

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def fill(self) -> None:
        """Not a byte more fits in, but what the last page of a file has room for."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def clear(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(mount_disk: Callable[[int], Path], tmp_path: Path) -> Disk:
    """It is the folder ``disk`` of the test."""
    (tmp_path / "disk").symlink_to(mount_disk(200 << 20))
    return Disk(tmp_path / "disk")


@pytest.fixture(params=LAUNCHED)
def words(request: pytest.FixtureRequest) -> tuple[object, ...]:
    return LAUNCHED[request.param]


def stops(*steps: int) -> list[str]:
    return [f"stop@rank=0,step={step},phase=forward,once" for step in steps]


def steps_in(run: Finished) -> list[int]:
    return [event["step"] for event in run.events("step_finished")]


def test_a_run_outlives_a_disk_that_is_full_for_a_while(runs, disk, words, undisturbed):
    expected = undisturbed(*CHANGED)
    job = runs.start("train", *words, *LONG, faults=stops(2, 33))  # no checkpoint is being written in step 2
    for change in (disk.fill, disk.clear):
        process = stopped_process(job)
        change()
        os.kill(process, signal.SIGCONT)
    run = runs.finish(job, "disk/run")
    assert run.exit_code == 0, run.stderr
    assert run.restarts == []
    assert run.digest == expected
    lost = sum(event["count"] for event in run.events("events_lost"))
    assert lost > 0, "what is logged in 31 steps does not fit into the rest of a page"
    assert len(set(range(1, NUM_STEPS + 1)) - set(steps_in(run))) <= lost
    assert steps_in(run) == sorted(set(steps_in(run)))
    assert {1, *range(33, NUM_STEPS + 1)} <= set(steps_in(run))
    told = [line for line in run.stderr.splitlines() if "the disk or quota is full (No space left on device)" in line]
    assert all(re.search(r"about [\d,]+ bytes are needed, [\d,]+ bytes are free", line) for line in told), told
    for name in ("model.safetensors", "checkpoint", "line of events.ndjson"):
        outages = len([line for line in told if line.endswith(f"the next {name} is tried as planned")])
        assert outages == run.stderr.count(f"the {name} can be written again"), run.stderr
        assert outages == 1 or (outages > 1 and name.startswith("line")), "a short line may fit where another did not"
    assert CheckpointStore(run.path / "checkpoints").steps()[-4:] == [33, 36, 39, 40]
    assert not list(run.path.rglob(".*partial*"))
    check_every_checkpoint_can_be_gone_on_from(runs, run, expected)


def check_every_checkpoint_can_be_gone_on_from(runs, run: Finished, expected: str) -> None:
    """The position in the log that each of them holds is the end of a whole line."""
    log = (run.path / "events.ndjson").read_bytes()
    store = CheckpointStore(run.path / "checkpoints")
    for step in store.steps():
        kept = log[: store.load(step).training["events_bytes"]]
        assert kept.endswith(b"\n")
        last = [json.loads(line) for line in kept.splitlines()][-1]
        assert last.get("step", step) <= step
    resumed = runs.resume("--at", 36, run="disk/run")
    assert (resumed.exit_code, resumed.digest) == (0, expected), resumed.stderr
    assert steps_in(resumed)[-8:] == list(range(33, NUM_STEPS + 1))
    assert steps_in(resumed) == sorted(set(steps_in(resumed)))


def test_a_disk_that_stays_full_ends_the_run_with_an_error_and_all_that_was_there(runs, disk):
    """It becomes full between two checkpoints: what is being written would make room by not being finished."""
    assert runs.finish(runs.start("train", *LONG, "--num-epochs", 4), "disk/run").exit_code == 0
    changes = ("--num-epochs", NUM_EPOCHS, "--checkpoint-every", "40 steps", "--history-file", "disk/history.json")
    job = runs.start("resume", "disk/run", *changes, faults=stops(38))
    process = stopped_process(job)
    before = load_model_file(disk.path / "run" / "model.safetensors").tensors
    disk.fill()
    os.kill(process, signal.SIGCONT)
    run = runs.finish(job, "disk/run")
    assert run.exit_code == 1
    error = run.stderr[run.stderr.index("error: ") :]
    for name in ("model.safetensors", "step-00000040", "history.json"):
        assert name in error
    assert "Traceback" not in run.stderr
    disk.clear()
    store = CheckpointStore(disk.path / "run" / "checkpoints")
    assert store.newest().step == 20
    after = load_model_file(disk.path / "run" / "model.safetensors").tensors
    assert all((before[name] == after[name]).all() for name in before)
    resumed = runs.resume(*changes, run="disk/run")
    assert resumed.exit_code == 0, resumed.stderr
    assert steps_in(resumed) == list(range(1, NUM_STEPS + 1))


def test_a_log_of_the_output_on_a_full_disk_ends_nothing(runs, begin, disk, undisturbed, words):
    command = ["sh", "-c", 'exec "$0" "$@" >disk/log 2>&1', sys.executable, "-m", "ringlet", "train", *words]
    disk.fill()
    command += ["--shards", 2, "--run-dir", "run", *OPTIONS]
    run = runs.finish(begin([*map(str, command)], cwd=runs.folder))
    run.check_same_as(undisturbed())


def test_files_of_the_ranks_on_a_full_disk_end_nothing_and_name_the_gap(begin, disk, tmp_path):
    """``--output DIR``: what did not fit is missing, whole writes only."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "for part in 'abc':\n"
        "    os.write(1, part.encode() * 9000 + b'\\n')\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    words = ["run", "-n", "1", "--launcher", "local", "--output", "disk/logs", str(script)]
    job = begin([sys.executable, "-m", "ringlet", *words], cwd=tmp_path)
    log = disk.path / "logs" / "rank-0.out"
    for change in (disk.fill, disk.clear, lambda: None):
        process = stopped_process(job)
        if change == disk.fill:
            wait_until(lambda: log.stat().st_size == 9001)
        if change == disk.clear:
            job.wait_for("the next output in rank-0.out is tried as planned", stream="stderr")
        change()
        os.kill(process, signal.SIGCONT)
    done = job.finish()
    assert done.returncode == 0
    gap = b"\n[9,001 bytes could not be written here]\n"
    assert log.read_bytes() == b"a" * 9000 + b"\n" + gap + b"c" * 9000 + b"\n"
    assert "the output in rank-0.out can be written again" in done.stderr
