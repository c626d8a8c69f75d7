"""Starting a command with all it starts, reading along, and making sure that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import ringlet
from ringlet.comm import environments

TIMEOUT = 60
MARK = "RINGLET_TEST_MARK"
_FOREIGN = (
    "RINGLET_LAUNCHER",
    "RINGLET_MPIEXEC",
    "RINGLET_TERMINAL",
    "RINGLET_ATTEMPT",
    "RINGLET_RESTART_DELAY",
    "RINGLET_FAULT",
    "PYTHONUNBUFFERED",
)
"""Variables that would change what a test sees."""


def clean_environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in environments.VARIABLES}
    ours = {name: value for name, value in ours.items() if name not in _FOREIGN}
    root = str(Path(ringlet.__file__).parents[1])
    return {**ours, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


def processes_with(mark: str) -> list[int]:
    """Ids of living processes that carry the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


@dataclass
class Launched:
    """A launcher and everything it has started."""

    process: subprocess.Popen[bytes]
    mark: str
    read: dict[str, bytes] = field(default_factory=dict)

    def wait_for(self, text: str, times: int = 1, stream: str = "stdout") -> None:
        """Read an output until ``text`` has come ``times`` times."""
        pipe = getattr(self.process, stream)
        seen = self.read.setdefault(stream, b"")
        while seen.count(text.encode()) < times:
            data = os.read(pipe.fileno(), 65536)
            assert data, f"{stream} ended before {text!r}: {seen!r}\n{self.finish().stderr}"
            seen += data
            self.read[stream] = seen

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end; of a stream that was closed nothing more is known."""
        stdout, stderr = (data or b"" for data in self.process.communicate(timeout=TIMEOUT))
        stdout, stderr = self.read.get("stdout", b"") + stdout, self.read.get("stderr", b"") + stderr
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, stdout.decode(), stderr.decode())

    def wait_until_all_gone(self) -> None:
        """Every process of the job ends; pytest's time-out is the limit."""
        for pid in processes_with(self.mark):
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    ready, _, _ = select.select([descriptor], [], [], TIMEOUT)
                    assert ready, f"process {pid} is still there"
                finally:
                    os.close(descriptor)


Begin = Callable[..., Launched]


def beginning() -> Iterator[Begin]:
    """Starts a command in the background; whatever is left of it at the end is killed, and that is a failure."""
    started: list[Launched] = []

    def start(command: Sequence[str], environment: Mapping[str, str] | None = None, **options: object) -> Launched:
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**clean_environment(), MARK: mark, **(environment or {})},
            start_new_session=True,
            **options,
        )
        started.append(Launched(process, mark))
        return started[-1]

    yield start
    leftovers = []
    for job in started:
        if job.process.poll() is None:
            job.process.kill()
            leftovers.append(job.process.pid)
        for pid in processes_with(job.mark):
            leftovers.append(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pipe in (job.process.stdout, job.process.stderr):
            if pipe is not None:
                pipe.close()
        job.process.wait()
    assert not leftovers, f"processes were left behind: {leftovers}"


begin = pytest.fixture(beginning)
