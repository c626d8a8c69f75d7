"""Ranks that mpiexec, mpirun or srun starts, on this machine or on many.

Each rank is two processes: a relay (``python -m ringlet.launch.mpi THREADS TARGET…``), which mpiexec knows, and its
child, the rank itself, which inherits the connection to MPI. The relay packs all that the rank prints and reports into
frames on its own standard output, which mpiexec carries to the launcher; so the launcher learns for every rank how it
ended, whatever MPI it is, and what it printed is never mixed up. After a failure the relay stays until the launcher has
heard of it and ends the job: if it left, mpiexec would end all ranks and lose what they said.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from types import FrameType
from typing import final

from ringlet.comm import environments
from ringlet.errors import EXIT_RANK_DIED
from ringlet.launch import messages
from ringlet.launch.job import SIGNAL_BASE, Job
from ringlet.launch.messages import MESSAGES, TOKEN_BYTES, Unpacker
from ringlet.launch.mpiexec import KILL_SIGNAL, LEAVE_SIGNAL, MpiLauncher
from ringlet.launch.plan import LaunchPlan
from ringlet.launch.processes import JobFolder, Processes, python_command, python_environment, start_guarded
from ringlet.launch.resources import thread_environment
from ringlet.signals import ASKING, FORWARDED, Requests, is_ignored
from ringlet.terminal import TERMINAL_VARIABLE

TOKEN_VARIABLE = "RINGLET_FRAMES"  # noqa: S105  a mark that tells frames from other bytes, no secret
_READ_BYTES = 1 << 16
_KILL_SECONDS = 3.0
"""How long relays get to end their ranks before mpiexec itself is killed."""
_MAX_NOISE = 20_000
_TICK_SECONDS = 0.5
_LINGER_SECONDS = 120.0


@final
class MpiRanks:
    """The ranks of a plan, started by ``launcher``."""

    def __init__(
        self, target: Sequence[str], plan: LaunchPlan, launcher: MpiLauncher, environ: Mapping[str, str]
    ) -> None:
        token = secrets.token_hex(TOKEN_BYTES // 2)
        self._launcher = launcher
        self._unpacker = Unpacker(token.encode())
        self._noise = bytearray()
        self._killed_at: float | None = None
        self._folder = JobFolder()
        self._selector = selectors.DefaultSelector()
        shared = {name: value for name, value in environ.items() if name not in environments.VARIABLES}
        shared = python_environment({**shared, TOKEN_VARIABLE: token})
        relay = python_command("ringlet.launch.mpi", str(plan.threads or 0), *target)
        command, extra = launcher.command(plan, relay, shared, self._folder.path)
        self._process = start_guarded(command, {**shared, **extra}, subprocess.PIPE)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def running(self) -> bool:
        """Whether mpiexec is there or has left something to read."""
        return bool(self._selector.get_map()) or self._process.poll() is None

    def pump(self, job: Job, seconds: float) -> None:
        """Pass on what relays sent, and the end of mpiexec."""
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, _READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._process.stdout:
                for rank, stream, payload in self._unpacker.feed(data):
                    job.take(rank, stream, payload)
            else:
                self._noise += data
        if self._process.poll() is not None and not self._selector.get_map():
            self._note_end(job, self._process.returncode)
        if self._killed_at is not None and monotonic() > self._killed_at + _KILL_SECONDS:
            self._end_mpiexec()

    def _note_end(self, job: Job, code: int) -> None:
        """mpiexec is gone: if not all ranks have told their end, it knows more than they do."""
        if job.all_returned or job.killing:
            return
        if job.asked is not None:
            job.stopped()
            return
        self._unpacker.close()
        words = (self._noise + self._unpacker.noise).decode(errors="replace").replace("\r", "").strip()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        text = f"{self._launcher.path} {how} before all ranks had ended: did one of them call MPI_Abort?"
        exit_code = code if 0 < code < SIGNAL_BASE else EXIT_RANK_DIED
        said = f". It said:\n{words[:_MAX_NOISE]}" if words else ""
        job.fail(f"{text}{said}", exit_code, text, is_loss=True)

    def forward(self, number: int) -> None:
        """Send a signal to every rank, by way of mpiexec and the relays."""
        self._process.send_signal(self._launcher.forwarding(number))

    def kill(self) -> None:
        """Tell the relays to end their ranks and themselves."""
        if self._killed_at is None:
            self._killed_at = monotonic()
            self._process.send_signal(KILL_SIGNAL)

    def _end_mpiexec(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End what still runs and let go of everything."""
        if self._process.poll() is None:
            self._end_mpiexec()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._selector.close()
        self._folder.close()


class Relay:
    """One rank and the way to its launcher."""

    def __init__(self, rank: int, token: bytes) -> None:
        self._rank = rank
        self._token = token
        self._parent = os.getppid()
        self._processes = Processes()
        self._requests = Requests()
        self._asked: int | None = None

    def run(self, target: list[str], environ: dict[str, str]) -> int:
        """Run the rank to its end; the exit code for mpiexec."""
        for number in (*ASKING, KILL_SIGNAL, LEAVE_SIGNAL):
            if not is_ignored(number):
                signal.signal(number, self._on_signal)
        command = python_command("ringlet.launch.worker", str(os.getpid()), *target)
        self._processes.start(self._rank, command, environ, inherit=True)
        if self._asked is not None:
            self._processes.forward(self._asked)
        while self._processes.running:
            for _, stream, data in self._processes.pump(_TICK_SECONDS):
                self._send(stream, data)
            for _, code, last in self._processes.ended():
                for stream, data in last:
                    self._send(stream, data)
                self._send(MESSAGES, messages.ended(code, out_of_memory=self._processes.memory.explains(code)))
                return self._leave(code)
            self._check_parent()
        return EXIT_RANK_DIED

    def _leave(self, code: int) -> int:
        """At once after success; otherwise when told so."""
        deadline = monotonic() + _LINGER_SECONDS
        while code != 0 and monotonic() < deadline:
            sleep(_TICK_SECONDS)
            self._check_parent()
        return min(abs(code), 255)

    def _send(self, stream: int, data: bytes) -> None:
        for frame in messages.pack(self._token, self._rank, stream, data):
            if not messages.send(sys.stdout.fileno(), frame):
                self._end()

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            self._end()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == KILL_SIGNAL:
            self._end()
        asked = signal.SIGTERM if number == LEAVE_SIGNAL else signal.Signals(number)
        if self._requests.take(asked) is not None:
            self._asked = FORWARDED[asked]
            self._processes.forward(self._asked)

    def _end(self) -> None:
        """End the rank and this process. mpiexec need not know why: the launcher does."""
        self._processes.kill()
        os._exit(0)


def main() -> int:
    """The exit code for mpiexec."""
    world = environments.detect()
    rank, ranks_here = (world.rank, world.local_size or 1) if world is not None else (0, 1)
    environ = {**os.environ, **thread_environment(int(sys.argv[1]) or None, ranks_here, os.environ)}
    token = environ.pop(TOKEN_VARIABLE).encode()
    if rank != 0:
        environ.pop(TERMINAL_VARIABLE, None)
    return Relay(rank, token).run(sys.argv[2:], environ)


if __name__ == "__main__":
    sys.exit(main())
