"""Ranks as plain processes of this machine: no MPI needed. They find each other by a folder private to the job.

If their programs use MPI themselves, and it is an MPICH, its ranks find each other too (``pmi``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from ringlet.comm import environments
from ringlet.comm.environments import loopback_environment
from ringlet.launch.cores import thread_environment
from ringlet.launch.folder import JobFolder
from ringlet.launch.job import Job
from ringlet.launch.pmi import PmiServer
from ringlet.launch.processes import Processes, python_command, python_environment
from ringlet.launch.terminal import TERMINAL_VARIABLE


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
        shared |= thread_environment(threads, size, environ) | loopback_environment(environ)
        shared |= {
            "RINGLET_JOB": str(self._folder.path),
            "RINGLET_SIZE": str(size),
            "RINGLET_LAUNCHER_PID": str(os.getpid()),
        }
        shared = python_environment(shared)
        try:
            for rank in range(size):
                if rank == 1:
                    shared.pop(TERMINAL_VARIABLE, None)
                self._start(rank, command, {**shared, "RINGLET_RANK": str(rank)})
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
