from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

import ringlet
from ringlet.comm import environments

TIMEOUT = 60
MARK = "RINGLET_TEST_MARK"
LAUNCHERS = ("local", "mpi")


def clean_environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in environments.VARIABLES}
    for name in ("RINGLET_LAUNCHER", "RINGLET_MPIEXEC", "RINGLET_TERMINAL", "PYTHONUNBUFFERED"):
        ours.pop(name, None)
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

    def wait_for(self, text: str, times: int = 1) -> None:
        """Read standard output until ``text`` has come ``times`` times."""
        assert self.process.stdout is not None
        seen = self.read.setdefault("stdout", b"")
        while seen.count(text.encode()) < times:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"output ended before {text!r}: {seen!r}\n{self.finish().stderr}"
            seen += data
            self.read["stdout"] = seen

    def finish(self) -> subprocess.CompletedProcess[str]:
        stdout, stderr = self.process.communicate(timeout=TIMEOUT)
        stdout = self.read.get("stdout", b"") + stdout
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, stdout.decode(), stderr.decode())

    def wait_until_all_gone(self) -> None:
        """Every process of the job ends; pytest's time-out is the limit."""
        for pid in processes_with(self.mark):
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    import select

                    ready, _, _ = select.select([descriptor], [], [], TIMEOUT)
                    assert ready, f"process {pid} is still there"
                finally:
                    os.close(descriptor)


Begin = Callable[..., Launched]


@pytest.fixture
def begin() -> Iterator[Begin]:
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


Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launch(begin: Begin) -> Launch:
    """Runs ``ringlet run`` with these words to its end."""

    def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ringlet", "run", *map(str, words)]
        return begin(command, environment).finish()

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Writes a script."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> str:
    if request.param == "mpi" and find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    return str(request.param)
