"""Ranks that mpiexec, mpirun or srun starts, on this machine or on many.

Each rank is two processes: a relay (``relay``), which mpiexec knows, and its child, the rank itself. The relay
packs all that the rank prints and reports into frames; so the launcher learns for every rank how it ended, whatever MPI
it is, and what it printed is never mixed up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import final

from ringlet.comm import environments
from ringlet.errors import EXIT_RANK_DIED
from ringlet.launch.job import SIGNAL_BASE, Job
from ringlet.launch.messages import TOKEN_BYTES, Unpacker
from ringlet.launch.mpiexec import KILL_SIGNAL, MpiLauncher
from ringlet.launch.plan import LaunchPlan
from ringlet.launch.processes import JobFolder, python_command, python_environment, start_guarded

TOKEN_VARIABLE = "RINGLET_FRAMES"  # noqa: S105  a mark that tells frames from other bytes, no secret
_READ_BYTES = 1 << 16
_KILL_SECONDS = 3.0
"""How long relays get to end their ranks before mpiexec itself is killed."""
_MAX_NOISE = 20_000


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
        relay = python_command("ringlet.launch.relay", str(plan.threads or 0), *target)
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
