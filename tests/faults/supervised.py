"""Runs of ``ringlet train`` at two workers, and the digest by which they are compared."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from launched import TIMEOUT, Begin, Launched, clean_environment, processes_with

from ringlet.checkpoint import CheckpointStore
from ringlet.models.files import load_model_file

NUM_EPOCHS, STEPS_PER_EPOCH = 2, 5
NUM_STEPS = NUM_EPOCHS * STEPS_PER_EPOCH
OPTIONS = ("--model", "simplemlp", "--dataset", "digits", "--steps-per-epoch", f"{STEPS_PER_EPOCH}")
OPTIONS += ("--num-epochs", f"{NUM_EPOCHS}")
OPTIONS += ("--global-batch-size", "32", "--checkpoint-every", "2 steps")


@dataclass(frozen=True)
class Finished:
    """A run that has ended, in one way or the other."""

    path: Path
    exit_code: int
    stderr: str

    @property
    def restarts(self) -> list[str]:
        """What the launcher said of each restart."""
        return [line for line in self.stderr.splitlines() if line.startswith("restart ")]

    @property
    def digest(self) -> str:
        """SHA-256 of the arrays of the model file and of the last checkpoint, and of what the run knows of itself."""
        checkpoint = CheckpointStore(self.path / "checkpoints").newest()
        assert checkpoint is not None
        assert checkpoint.optimizer.keys() == {"first", "second"}
        text = hashlib.sha256(json.dumps([checkpoint.step, checkpoint.training["progress"]]).encode())
        for arrays in (load_model_file(self.path / "model.safetensors").tensors, checkpoint.optimizer):
            for name in sorted(arrays):
                text.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
                text.update(np.ascontiguousarray(arrays[name]).tobytes())
        return text.hexdigest()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Those of the run's log, whole lines only."""
        lines = (self.path / "events.ndjson").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def check_same_as(self, digest: str, num_epochs: int = NUM_EPOCHS) -> None:
        """It ended well, with the same bits, and its log has every step once and in order."""
        assert self.exit_code == 0, self.stderr
        assert self.digest == digest, self.stderr
        steps = range(1, num_epochs * STEPS_PER_EPOCH + 1)
        assert [event["step"] for event in self.events("step_finished")] == list(steps)
        assert [event["epoch"] for event in self.events("epoch_finished")] == list(range(1, num_epochs + 1))


@dataclass
class Runs:
    """Starts runs below ``folder``."""

    folder: Path
    begin: Begin
    started: list[Launched] = field(default_factory=list)

    def start(self, *words: object, faults: Sequence[str] = (), **environment: str) -> Launched:
        """``ringlet`` with these words. Of each fault ``once`` becomes a file, so that it happens once only."""
        self._temporary.mkdir(exist_ok=True)
        marked = [
            fault.replace("once", f"once={self.folder / f'fault-{number}'}") for number, fault in enumerate(faults)
        ]
        settings = {"TMPDIR": str(self._temporary), "RINGLET_RESTART_DELAY": "0", "RINGLET_FAULT": ";".join(marked)}
        command = [sys.executable, "-m", "ringlet", *map(str, words)]
        self.started.append(self.begin(command, settings | environment, cwd=self.folder))
        return self.started[-1]

    def start_training(self, *words: object, launcher: str = "local", **settings: Any) -> Launched:
        """``ringlet train`` at two workers, or as ``words`` say."""
        options = ("train", "-n", 2, "--launcher", launcher, "--shards", 2, "--run-dir", "run", *OPTIONS)
        return self.start(*options, *words, **settings)

    def train(self, *words: object, **settings: Any) -> Finished:
        """The same, to its end."""
        return self.finish(self.start_training(*words, **settings))

    def resume(self, *words: object, run: str = "run", **settings: Any) -> Finished:
        """Go on with a run, by default the one that :meth:`train` has begun."""
        return self.finish(self.start("resume", run, "--launcher", "local", *words, **settings), run)

    def go_on_without_reader(self, job: Launched) -> None:
        """No one reads what a job prints any more; a process of it that was stopped continues then."""
        process = stopped_process(job)
        for pipe in (job.process.stdout, job.process.stderr):
            assert pipe is not None
            pipe.close()
        job.process.stdout = job.process.stderr = None
        os.kill(process, signal.SIGCONT)

    def finish(self, job: Launched, run: str = "run") -> Finished:
        """Wait for the end of a run."""
        done = job.finish()
        assert processes_with(job.mark) == []
        return Finished(self.folder / run, done.returncode, done.stderr)

    @property
    def _temporary(self) -> Path:
        return self.folder / "temporary"

    def leftovers(self) -> list[str]:
        """What is left in the folder for temporary files."""
        return [path.name for path in self._temporary.iterdir()] if self._temporary.exists() else []


@dataclass
class Undisturbed:
    """Digests of undisturbed runs by their options."""

    folder: Path
    digests: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __call__(self, *words: object, **environment: str) -> str:
        """Run it if it has not been."""
        key = (*map(str, words), *(f"{name}={value}" for name, value in environment.items()))
        if key not in self.digests:
            run = self.folder / f"run{len(self.digests)}"
            command = [sys.executable, "-m", "ringlet", "train", "-n", "2", "--launcher", "local", "--shards", "2"]
            command += ["--run-dir", str(run), *OPTIONS, *map(str, words)]
            done = subprocess.run(
                command, env=clean_environment() | environment, capture_output=True, text=True, timeout=TIMEOUT
            )
            assert done.returncode == 0, done.stderr
            self.digests[key] = Finished(run, 0, done.stderr).digest
        return self.digests[key]


def rank_process(job: Launched, rank: int) -> int:
    """The process id of a rank that the local launcher has started."""
    return next(_rank_processes(job, rank))


def _rank_processes(job: Launched, rank: int) -> Iterator[int]:
    for pid in processes_with(job.mark):
        if f"RINGLET_RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            yield pid


def stopped_process(job: Launched) -> int:
    """The process of a job that a fault has stopped, once there is one."""
    found: list[int] = []

    def look() -> bool:
        assert job.process.poll() is None, job.finish().stderr
        for pid in processes_with(job.mark):
            with contextlib.suppress(OSError):
                if is_stopped(pid):
                    found.append(pid)
        return bool(found)

    wait_until(look)
    return found[0]


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for a limited time."""
    end = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < end, "it did not happen"
        sleep(0.01)


def is_stopped(pid: int, pending: int | None = None) -> bool:
    """Whether a process is stopped, and the signal ``pending`` waits for it to go on."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    waiting = int(status["ShdPnd"], 16) | int(status["SigPnd"], 16)
    return status["State"].startswith("T") and (pending is None or bool(waiting & 1 << (pending - 1)))
