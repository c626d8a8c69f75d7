"""Processes of ranks on this machine: their start, the streams that come out of them, their end, their job's folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ringlet
from ringlet.io.disk import try_lock
from ringlet.launch.messages import MESSAGES, REPORT_VARIABLE, STDERR, STDOUT
from ringlet.launch.resources import MemoryWatch

_READ_BYTES = 1 << 16
_TICK_SECONDS = 0.05
_FOLDER_PREFIX = "ringlet-job-"
_LOCK = "lock"


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours with this interpreter; files of the working folder shadow nothing."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ``, completed so that started interpreters find this very package."""
    root = str(Path(ringlet.__file__).resolve().parents[1])
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths and "site-packages" not in root:
        paths.insert(0, root)
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else dict(environ)


def start_guarded(command: Sequence[str], environ: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own that ends when this process does; ``output`` is for both its streams."""
    return subprocess.Popen(  # noqa: S603  a list of words, no shell
        python_command("ringlet.launch.lifeline", str(os.getpid()), *command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=dict(environ),
        start_new_session=True,
    )


class Processes:
    """Running ranks. Each leads a session of its own, so that it can be ended with all it has started."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._pipes: dict[int, dict[int, int]] = {}
        self.memory = MemoryWatch()

    def start(
        self,
        rank: int,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        inherit: bool = False,
        descriptors: Sequence[int] = (),
    ) -> int:
        """Start a rank and give its process id. It inherits ``descriptors``, or with ``inherit`` all there are."""
        report, report_end = os.pipe()
        os.set_inheritable(report_end, True)
        try:
            process = subprocess.Popen(  # noqa: S603  a list of words, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environ, REPORT_VARIABLE: str(report_end)},
                close_fds=not inherit,
                pass_fds=() if inherit else (report_end, *descriptors),
                start_new_session=True,
            )
        finally:
            os.close(report_end)
        assert process.stdout is not None
        assert process.stderr is not None
        self._running[rank] = process
        self._pipes[rank] = {}
        streams: dict[int, Any] = {STDOUT: process.stdout, STDERR: process.stderr, MESSAGES: report}
        for stream, pipe in streams.items():
            self._watch(rank, stream, pipe if isinstance(pipe, int) else os.dup(pipe.fileno()))
        process.stdout.close()
        process.stderr.close()
        return process.pid

    def _watch(self, rank: int, stream: int, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipes[rank][stream] = pipe
        self._selector.register(pipe, selectors.EVENT_READ, (stream, rank))

    def pump(self, seconds: float) -> Iterator[tuple[int, int, bytes]]:
        """(rank, stream, data) of what arrives within ``seconds``; what a rank printed before what it reports."""
        if not self._selector.get_map():
            seconds = min(seconds, _TICK_SECONDS)
        for key, _ in sorted(self._selector.select(seconds), key=lambda ready: ready[0].data):
            stream, rank = key.data
            data = self._read(key.fd)
            if data:
                yield rank, stream, data
            elif data is not None:
                self._forget(rank, stream)

    def ended(self) -> Iterator[tuple[int, int, list[tuple[int, bytes]]]]:
        """(rank, return code as of ``subprocess``, last data of its streams) of ranks that have ended since."""
        for rank, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            last = [(stream, data) for stream in list(self._pipes[rank]) for data in self._rest(rank, stream)]
            del self._running[rank]
            self._end_session(process.pid)
            yield rank, code, last

    def _rest(self, rank: int, stream: int) -> Iterator[bytes]:
        """What is still in a pipe of a rank that has ended; a process it left behind may hold it open."""
        while data := self._read(self._pipes[rank][stream]):
            yield data
        self._forget(rank, stream)

    def _forget(self, rank: int, stream: int) -> None:
        pipe = self._pipes[rank].pop(stream)
        self._selector.unregister(pipe)
        os.close(pipe)

    @staticmethod
    def _read(pipe: int) -> bytes | None:
        try:
            return os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return None

    @property
    def running(self) -> bool:
        """Whether any rank has not ended, or its end has not been told."""
        return bool(self._running)

    def forward(self, number: int) -> None:
        """Send a signal to every rank (not to what it has started: that is the rank's business)."""
        for process in self._running.values():
            process.send_signal(number)

    def kill(self) -> None:
        """End all ranks and what they have started, at once."""
        for process in self._running.values():
            self._end_session(process.pid)

    @staticmethod
    def _end_session(leader: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)

    def close(self) -> None:
        """End what still runs and let go of everything."""
        self.kill()
        for rank, process in self._running.items():
            process.wait()
            for stream in list(self._pipes[rank]):
                self._forget(rank, stream)
        self._running.clear()
        self._selector.close()


class JobFolder:
    """An empty folder private to a job and this user. As long as its lock is held, the job lives.

    It is removed with the job; what a killed launcher has left is removed by the next one.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """In ``parent``, by default among temporary files."""
        place = parent or Path(tempfile.gettempdir())
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=place))
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove it. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(parent: Path) -> None:
    """Remove folders of this user's jobs whose launcher has ended: no one holds their lock."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink() and _is_abandoned(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        return try_lock(descriptor) is True
    finally:
        os.close(descriptor)
