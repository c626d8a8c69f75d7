"""Runs a function on real ranks: processes of their own, with a hard time-out, all ended and reaped in the end.

    run_ranks(Path(__file__).with_name("checks.py"), "function", num_ranks=3, communicator="mpi")

calls ``function(communicator, **arguments)`` of that file on every rank and gives the list of results by rank. Results
and arguments are JSON. If a rank fails, :class:`JobError` says so with what all ranks printed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ringlet.comm.environments import VARIABLES

RANK_MAIN = Path(__file__).with_name("rank_main.py")
COMMUNICATORS = ("single", "node", "mpi", "torch")
GRACE_SECONDS = 5.0
"""Between the ranks' own alarm and the harness's; and from asking a job to end until it is killed."""


class JobError(AssertionError):
    """A rank failed, or the job took too long; the message holds the output of all ranks."""


def mpiexec() -> Path:
    """The mpiexec beside this Python (from wheels); the test is skipped without one."""
    path = Path(sys.executable).with_name("mpiexec")
    if not path.exists() or find_spec("mpi4py") is None:
        pytest.skip("needs MPI: pip install mpi4py mpich")
    return path


def run_ranks(
    target: str | tuple[Path, str],
    num_ranks: int,
    *,
    communicator: str = "node",
    arguments: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """The result of ``target`` (``"file.py:function"`` or file and name) on every rank, in the order of ranks."""
    path, name = target if isinstance(target, tuple) else _parse(target)
    with tempfile.TemporaryDirectory(prefix="ringlet-test-") as directory:
        folder = Path(directory)
        own = timeout - GRACE_SECONDS if timeout > 2 * GRACE_SECONDS else timeout
        program = [
            sys.executable,
            str(RANK_MAIN),
            str(path),
            name,
            directory,
            json.dumps(dict(arguments or {})),
            str(own),
        ]
        run_job(program, num_ranks, communicator, folder, timeout, environment or {})
        files = [folder / f"{rank}.json" for rank in range(num_ranks)]
        if not all(file.exists() for file in files):
            raise JobError(f"a rank of {communicator} left no result\n{job_output(folder)}")
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def run_job(
    program: Sequence[str],
    num_ranks: int,
    communicator: str,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str],
) -> None:
    """Start ``program`` on every rank and wait until all have ended well; output goes to files in ``folder``."""
    base = {key: value for key, value in os.environ.items() if key not in VARIABLES and not key.startswith("PMI_")}
    base |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **environment}
    with ExitStack() as resources:
        commands = _commands(program, num_ranks, communicator, folder, resources)
        processes = []
        resources.callback(lambda: _end(processes))
        for number, (command, extra) in enumerate(commands):
            output = resources.enter_context((folder / f"{number}.output").open("wb"))
            processes.append(
                subprocess.Popen(
                    command,
                    env={**base, **extra},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        problem = _wait(processes, time.monotonic() + timeout)
    if problem:
        raise JobError(f"{num_ranks} ranks of {communicator}: {problem}\n{job_output(folder)}")


def job_output(folder: Path) -> str:
    """What the processes of a job printed, each under its number."""
    outputs = sorted(folder.glob("*.output"))
    return "\n".join(f"--- process {path.stem} ---\n{path.read_text(errors='replace')}" for path in outputs)


def _parse(target: str) -> tuple[Path, str]:
    path, _, name = target.rpartition(":")
    return Path(path), name


def _commands(
    program: Sequence[str], num_ranks: int, communicator: str, folder: Path, resources: ExitStack
) -> list[tuple[list[str], dict[str, str]]]:
    """The processes to start, each with its own environment variables."""
    if communicator == "single":
        assert num_ranks == 1, "a single communicator has one rank"
        return [(list(program), {})]
    if communicator == "mpi":
        return [([str(mpiexec()), "-n", str(num_ranks), *program], {})]
    if communicator == "node":
        job = folder / "job"
        job.mkdir(mode=0o700)
        common = {"RINGLET_JOB": str(job), "RINGLET_SIZE": str(num_ranks), "RINGLET_LAUNCHER_PID": str(os.getpid())}
        return [(list(program), {**common, "RINGLET_RANK": str(rank)}) for rank in range(num_ranks)]
    common = _torch_environment(num_ranks, resources)
    ranks = range(num_ranks)
    return [(list(program), {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in ranks]


def _torch_environment(num_ranks: int, resources: ExitStack) -> dict[str, str]:
    """As torchrun does it: this process keeps the store where ranks meet, so its port is never guessed."""
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    resources.callback(lambda: store.port)  # keeps it alive until the job has ended
    return {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> str | None:
    """Wait for all; the first one that fails ends the waiting. Says what went wrong."""
    waiting = dict(enumerate(processes))
    while waiting:
        for number, process in list(waiting.items()):
            code = process.poll()
            if code is None:
                continue
            del waiting[number]
            if code != 0:
                return f"process {number} ended with {code}"
        if time.monotonic() > deadline:
            return f"not finished in time; processes {sorted(waiting)} were still running"
        time.sleep(0.005)
    return None


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End whatever is left: first politely, so that mpiexec takes its ranks along, then for certain."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
