"""Ranks as plain processes of this machine: no MPI needed. They find each other by a folder private to the job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import final

from ringlet.comm import environments
from ringlet.launch.cores import thread_environment
from ringlet.launch.folder import JobFolder
from ringlet.launch.job import Job
from ringlet.launch.processes import Processes, python_command, python_environment
from ringlet.launch.terminal import TERMINAL_VARIABLE


@final
class LocalRanks:
    """``size`` processes that run ``target``."""

    def __init__(self, target: Sequence[str], size: int, threads: int | None, environ: Mapping[str, str]) -> None:
        self._processes = Processes()
        self._folder = JobFolder()
        command = python_command("ringlet.launch.worker", str(os.getpid()), *target)
        shared = {name: value for name, value in environ.items() if name not in environments.VARIABLES}
        shared |= thread_environment(threads, size, environ)
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
                self._processes.start(rank, command, {**shared, "RINGLET_RANK": str(rank)})
        except BaseException:
            self.close()
            raise

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
            job.ended(rank, code, out_of_memory=self._processes.memory.explains(code))

    def forward(self, number: int) -> None:
        """Send a signal to every rank."""
        self._processes.forward(number)

    def kill(self) -> None:
        """End all ranks and what they started."""
        self._processes.kill()

    def close(self) -> None:
        """End what still runs; remove the job's folder."""
        self._processes.close()
        self._folder.close()
