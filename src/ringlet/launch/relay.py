"""``python -m ringlet.launch.relay THREADS TARGET…``: stands between mpiexec and one rank.

It starts the rank as its child, which inherits the connection to MPI, and writes all that comes from it as frames to
its own standard output, which mpiexec carries to the launcher. After a failure it stays until the launcher has heard
of it and ends the job: if it left, mpiexec would end all ranks and lose what they said.
"""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic, sleep
from types import FrameType

from ringlet.comm import environments
from ringlet.errors import EXIT_RANK_DIED
from ringlet.launch import messages
from ringlet.launch.mpi import TOKEN_VARIABLE
from ringlet.launch.mpiexec import KILL_SIGNAL, LEAVE_SIGNAL
from ringlet.launch.output import TERMINAL_VARIABLE
from ringlet.launch.processes import Processes, python_command
from ringlet.launch.resources import thread_environment
from ringlet.signals import ASKING, FORWARDED, Requests, is_ignored

_TICK_SECONDS = 0.5
_LINGER_SECONDS = 120.0


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
                self._send(messages.MESSAGES, messages.ended(code, out_of_memory=self._processes.memory.explains(code)))
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
