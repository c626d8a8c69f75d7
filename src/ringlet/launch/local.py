"""Ranks as plain processes of this machine: no MPI needed. They find each other by a folder private to the job.

If their programs use MPI themselves, and it is an MPICH, its ranks find each other too: the launcher itself answers
what they ask while MPI starts. There is no mpiexec and nothing that listens. MPICH's own mpiexec accepts connections on
every interface of the machine, and no setting of it changes that. Its ranks need little of it: who they are
(variables), a table into which each writes its address, and a barrier. They ask in lines of text over a connection they
inherit, version 1.1 of the Process Management Interface (PMI). Here it is one end of a pair of sockets without a name,
one pair for each rank.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from ringlet.comm import environments
from ringlet.launch.job import Job
from ringlet.launch.processes import JobFolder, Processes, python_command, python_environment
from ringlet.launch.resources import thread_environment
from ringlet.terminal import TERMINAL_VARIABLE

_ANSWER_LIMITS = "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024 rc=0"
_MAX_LINE = 1 << 16
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class PlainProcesses:
    """The launcher that is none."""

    serves_mpi: bool = False
    """Whether MPI works in them."""


@final
class LocalRanks:
    """``size`` processes that run ``target``."""

    def __init__(
        self,
        target: Sequence[str],
        size: int,
        threads: int | None,
        environ: Mapping[str, str],
        *,
        serves_mpi: bool = False,
    ) -> None:
        self._processes = Processes()
        self._mpi = PmiServer(size) if serves_mpi else None
        self._folder = JobFolder()
        command = python_command("ringlet.launch.worker", str(os.getpid()), *target)
        shared = {name: value for name, value in environ.items() if name not in environments.VARIABLES}
        shared |= thread_environment(threads, size, environ) | environments.loopback_environment(environ)
        shared |= {
            environments.JOB: str(self._folder.path),
            environments.SIZE: str(size),
            environments.LAUNCHER_PID: str(os.getpid()),
        }
        shared = python_environment(shared)
        try:
            for rank in range(size):
                if rank == 1:
                    shared.pop(TERMINAL_VARIABLE, None)
                self._start(rank, command, {**shared, environments.RANK: str(rank)})
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int, command: Sequence[str], environ: Mapping[str, str]) -> None:
        if self._mpi is None:
            self._processes.start(rank, command, environ)
            return
        own = {**environ, **self._mpi.variables(rank)}
        self._processes.start(rank, command, own, descriptors=(self._mpi.end_of(rank),))
        self._mpi.started(rank)

    @property
    def running(self) -> bool:
        """Whether any rank is left."""
        return self._processes.running

    def pump(self, job: Job, seconds: float) -> None:
        """Pass on streams, then ends."""
        for rank, stream, data in self._processes.pump(seconds):
            job.take(rank, stream, data)
        for rank, code, last in self._processes.ended():
            for stream, data in last:
                job.take(rank, stream, data)
            if self._mpi is not None:
                self._mpi.ended(rank)
            self._check_abort(job)
            job.ended(rank, code, out_of_memory=self._processes.memory.explains(code))
        self._check_abort(job)

    def _check_abort(self, job: Job) -> None:
        if self._mpi is not None and self._mpi.abort is not None:
            rank, code = self._mpi.abort
            job.fail(f"rank {rank} of {job.size} called MPI_Abort with exit code {code}", code)
            job.kill_in(0)

    def forward(self, number: int) -> None:
        """Send a signal to every rank."""
        self._processes.forward(number)

    def kill(self) -> None:
        """End all ranks and what they started."""
        self._processes.kill()

    def close(self) -> None:
        """End what still runs; remove the job's folder."""
        self._processes.close()
        if self._mpi is not None:
            self._mpi.close()
        self._folder.close()


@final
class PmiServer:
    """Answers ``size`` ranks of this machine, in a thread, until :meth:`close`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._table = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}  # one machine, all ranks
        self._waiting: list[socket.socket] = []
        self._name = f"ringlet-{secrets.token_hex(8)}"  # after which MPICH names its shared memory, too
        self._lock = threading.Lock()
        self.abort: tuple[int, int] | None = None
        """Which rank has called MPI_Abort first, and its exit code."""
        self._selector = selectors.DefaultSelector()
        self._ends: list[socket.socket] = []
        self._ours: list[socket.socket] = []
        for rank in range(size):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self._ours.append(ours)
            self._ends.append(theirs)
            self._selector.register(ours, selectors.EVENT_READ, _Conversation(rank))
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="ringlet-pmi", daemon=True)
        self._thread.start()

    def end_of(self, rank: int) -> int:
        """The file descriptor that this rank must inherit; see :meth:`started`."""
        return self._ends[rank].fileno()

    def variables(self, rank: int) -> dict[str, str]:
        """What MPICH reads when it is initialised."""
        return {
            "PMI_FD": str(self.end_of(rank)),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(self._size),
            "MPI_LOCALRANKID": str(rank),
            "MPI_LOCALNRANKS": str(self._size),
        }

    def started(self, rank: int) -> None:
        """The rank has its end: from now on the connection is closed when the rank ends."""
        self._ends[rank].close()

    def ended(self, rank: int) -> None:
        """The rank has ended: read what it said last, before anyone asks for :attr:`abort`."""
        self._hear(self._ours[rank])

    def close(self) -> None:
        """Let go of all connections. Safe to call twice."""
        self._stop.close()
        self._thread.join()
        for end in (*self._ours, *self._ends, self._stopped):
            self._forget(end)
        self._selector.close()

    # -- the thread ---------------------------------------------------------------------------------------------------
    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                self._hear(self._ours[key.data.rank])

    def _hear(self, rank: socket.socket) -> None:
        """Answer what has come from a rank; be done with one that has ended, the launcher knows how."""
        with self._lock:
            try:
                key = self._selector.get_key(rank)
                while data := rank.recv(_READ_BYTES):
                    self._converse(rank, key.data, data)
            except BlockingIOError:
                return
            except (KeyError, OSError, ValueError):
                pass
            self._forget(rank)

    def _converse(self, rank: socket.socket, conversation: _Conversation, data: bytes) -> None:
        for line in conversation.lines(data):
            answer = self._answer(rank, conversation.rank, line)
            if answer:
                rank.sendall(f"{answer}\n".encode())

    def _forget(self, rank: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(rank)
        rank.close()

    def _answer(self, rank: socket.socket, number: int, line: str) -> str | None:
        command, words = _parse(line)
        match command:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return _ANSWER_LIMITS
            case "get_appnum":
                return "cmd=appnum appnum=0 rc=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self._size} rc=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._name} rc=0"
            case "put":
                self._table[words.get("key", "")] = words.get("value", "")
                return "cmd=put_result rc=0 msg=success"
            case "get":
                value = self._table.get(words.get("key", ""))
                found = f"rc=0 msg=success value={value}" if value is not None else "rc=-1 msg=key_not_found"
                return f"cmd=get_result {found}"
            case "barrier_in":
                self._meet(rank)
                return None
            case "finalize":
                return "cmd=finalize_ack rc=0"
            case "abort":  # MPI expects all ranks to be ended from outside
                code = words.get("exitcode", "")
                self.abort = self.abort or (number, int(code) & 0xFF if code.isdecimal() else 1)
                return None
        return f"cmd={command}_result rc=-1 msg=not_supported_on_one_machine,_use_--launcher_mpi"

    def _meet(self, rank: socket.socket) -> None:
        self._waiting.append(rank)
        if len(self._waiting) == self._size:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                one.sendall(b"cmd=barrier_out rc=0\n")


@final
class _Conversation:
    """Cuts what a rank sends into requests; one that has several lines (``mcmd=spawn`` … ``endcmd``) counts as one."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._pending = b""
        self._several: str | None = None

    def lines(self, data: bytes) -> list[str]:
        """The requests that are complete by now."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._pending = self._pending[-_MAX_LINE:]
        return [line for line in map(self._request, lines) if line]

    def _request(self, data: bytes) -> str:
        line = data.decode(errors="replace")
        if line.startswith("mcmd="):
            self._several = line[1:]
        elif self._several is None:
            return line
        elif line.strip() == "endcmd":
            line, self._several = self._several, None
            return line
        return ""


def _parse(line: str) -> tuple[str, dict[str, str]]:
    """The command and its words; a value, the last of them, may have spaces."""
    head, mark, value = line.partition(" value=")
    words = dict(word.partition("=")[::2] for word in head.split())
    if mark:
        words["value"] = value
    return words.get("cmd", ""), words
