"""Contenders in processes of their own, which stay alive and time calls when they are asked to.

So libraries do not share thread pools and allocators, memory can be told apart, what hangs can be ended, and all still
take turns. A contender answers with one line of JSON to each number of calls on its standard input. What it prints
itself goes to a file, whose last line says why it failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class FailedError(Exception):
    """A contender that cannot be timed, with the reason."""


class Served:
    """A process that runs ``module`` with ``--serve REQUEST``, on as many cores as it has threads."""

    def __init__(
        self, module: str, request: Mapping[str, Any], *, num_threads: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        threads = dict.fromkeys(ONE_THREAD, str(num_threads))
        command = [sys.executable, "-W", "ignore", "-m", module, "--serve", json.dumps(request)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **threads, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def answer(self, seconds: float) -> Any:
        """The next line; FailedError if it does not come within ``seconds``. The process is ended then."""
        deadline = monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - monotonic()
            if left <= 0 or not self._selector.select(left):
                self.close()
                raise FailedError(f"no result within {seconds:.0f} s")
            assert self._process.stdout is not None
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                reason = self._last_line()
                self.close()
                raise FailedError(reason)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def seconds(self, num_calls: int, limit: float) -> float:
        """Mean seconds of so many calls."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{num_calls}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise FailedError(self._last_line()) from None
        return float(self.answer(limit))

    def close(self) -> None:
        """End the process with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self._selector.close()
        if not self._log.closed:
            self._log.close()

    def _last_line(self) -> str:
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return lines[-1][:200] if lines and code > 0 else ended


def serve(
    prepare: Callable[[], tuple[Callable[[], object], Mapping[str, Any]]], num_threads: int, *, pin_late: bool = False
) -> None:
    """In the process: ``prepare`` gives the call to time and facts, which are the first answer; then numbers of calls.

    Standard output is kept for answers; what libraries print there goes to the log. With ``pin_late`` the preparation
    may use all cores.
    """
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = _cores(os.sched_getaffinity(0), num_threads)
    if not pin_late:
        os.sched_setaffinity(0, cores)
    call, facts = prepare()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        num_calls = int(line)
        start = perf_counter()
        for _ in range(num_calls):
            call()
        print((perf_counter() - start) / num_calls, file=answers, flush=True)


def _end_with_parent() -> None:
    """A comparison that is interrupted leaves no contender behind, whatever that one is doing (Linux)."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _cores(usable: Iterable[int], num_threads: int) -> set[int]:
    """The last ones: the first core of a machine has the most other work."""
    return set(sorted(usable)[-num_threads:])


def resident_bytes(name: str = "VmRSS") -> int:
    """A size of this process (Linux): ``VmRSS`` now, ``VmHWM`` the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def forget_peak() -> None:
    """Let the peak of resident memory start again from now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def free_bytes() -> int:
    """Memory that the machine can still give out."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
