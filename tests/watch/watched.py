"""Logs of runs as training writes them, and ``ringlet watch`` as a process."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ringlet.training.events import (
    EpochFinished,
    EpochStarted,
    Event,
    EventLog,
    PhasesMeasured,
    RunEnded,
    RunRestarted,
    RunResumed,
    RunStarted,
    StalenessMeasured,
    StepFinished,
    ValidationStarted,
)

TIMEOUT = 60.0
STEPS = 10
PHASES = ("data", "forward", "backward", "wait", "reduce")


class LoggedRun:
    """Writes a log event by event, with a clock of its own."""

    def __init__(self, path: Path, *, model: str = "simplemlp", num_epochs: int = 5) -> None:
        path.mkdir()
        self.path, self.events, self.num_epochs = path, path / "events.ndjson", num_epochs
        self._ticks = count(1_700_000_000)
        self.step = 0
        versions = {"ringlet": "0"}
        self.tell(
            RunStarted(
                model, "digits", 1000, 90, 10, 20, num_epochs, 9, 2, 1, "node", 2, "native", "cpu", "compiled",
                {"strategy": "sync", "optimizer": "adam", "seed": 3}, versions,
            )
        )  # fmt: skip

    def tell(self, event: Event) -> None:
        """Log one event."""
        with closing(EventLog(self.events, clock=lambda: float(next(self._ticks)))) as log:
            log(event)

    def epoch(self, epoch: int, *, loss: float | None = None) -> None:
        """All events of an epoch of ten steps."""
        self.tell(EpochStarted(epoch, self.num_epochs, STEPS, 90))
        for number in range(1, STEPS + 1):
            self.step += 1
            value = 1 / self.step if loss is None else loss
            self.tell(StepFinished(epoch, self.step, number, 9, 0.01, {"loss": value, "accuracy": 0.5}, {}))
        self.tell(ValidationStarted(epoch, 10))
        self.tell(PhasesMeasured(epoch, PHASES, ((0.1, 0.2, 0.3, 0.3, 0.1), (0.1, 0.3, 0.3, 0.1, 0.2))))
        metrics = {"loss": 1 / epoch, "accuracy": 0.5, "val_loss": 2 / epoch, "val_accuracy": 0.6}
        self.tell(EpochFinished(epoch, self.num_epochs, self.step, metrics, 0.01, 90, 1.0, 0.1, 90.0))

    def resume(self, cause: str) -> None:
        """Workers were started again."""
        self.tell(RunResumed(self.step // STEPS, self.step, self.num_epochs, 2, "native", {}))
        self.tell(RunRestarted(1, cause))

    def stale(self, epoch: int) -> None:
        """What an asynchronous strategy tells."""
        self.tell(StalenessMeasured(epoch, 1.5, 3, (1, 5, 2, 1, *(0,) * 60)))

    def end(self) -> None:
        """Nothing follows."""
        self.tell(RunEnded("finished", ""))


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: bytes


class Watched:
    """A running ``ringlet watch``."""

    def __init__(self, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ringlet", "watch", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, self._process.communicate()[1]
        self.port = int(self.address.rstrip("/").rpartition(":")[2])

    def ask(self, path: str = "/", *, method: str = "GET", **headers: str) -> Answer:
        """One request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def stream(self) -> Iterator[bytes]:
        """Lines of the stream of news, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        connection.request("GET", "/stream")
        answer = connection.getresponse()
        try:
            while line := answer.readline():
                yield line
        finally:
            connection.close()

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Ctrl-C, or another signal; the exit code and what was said on stderr."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """The exit code and what was said on stderr, once it has ended by itself."""
        _, said = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, said

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
