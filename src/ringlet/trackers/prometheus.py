"""Prometheus: the newest metrics of a run, as a file for node_exporter's textfile collector or on a port."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, final

from ringlet.component import Problem, option
from ringlet.errors import FileWriteError, UsageError
from ringlet.io.disk import write_whole
from ringlet.libraries import require
from ringlet.trackers.base import Tracker, Values
from ringlet.trackers.registry import TrackerConfig
from ringlet.training.events import RunStarted

FILE = "metrics.prom"
_WRITE_SECONDS = 2.0
_ADDRESS = "127.0.0.1"
_SINGLE = {
    "learning_rate": "Learning rate of the last step",
    "samples_per_second": "Trained samples per second in the last epoch",
    "epoch": "Finished epochs",
}
_LABELLED = {
    "step": "Metric of the last batch",
    "train": "Metric of the last epoch on training data",
    "val": "Metric of the last epoch on validation data",
    "test": "Metric on test data",
    "time": "Seconds of the last epoch, mean over ranks",
    "staleness": "Staleness of the last epoch's gradients, in updates",
}


@final
class Prometheus(Tracker):
    """Keeps gauges ``ringlet_…{run="…"}``: ``ringlet_step``, ``ringlet_train{figure="loss"}`` and so on.

    With ``path`` they are written to that file, whole or not at all; with ``port`` they are served on the loopback.
    """

    def __init__(self, path: Path | str | None = None, *, port: int | None = None, run: str = "") -> None:
        super().__init__()
        self._path, self._port, self._run = None if path is None else Path(path), port, run
        self._written = 0.0
        self._server: Any = None

    def open(self) -> None:
        """Make the gauges; serve them, if that is wanted."""
        self._client = require("prometheus_client")
        self.registry = self._client.CollectorRegistry()
        gauge = self._client.Gauge
        about = {"registry": self.registry}
        self._singles = {name: gauge(f"ringlet_{name}", text, ["run"], **about) for name, text in _SINGLE.items()}
        self._labelled = {
            name: gauge(f"ringlet_{name}", text, ["run", "figure"], **about) for name, text in _LABELLED.items()
        }
        self._step = gauge("ringlet_updates", "Updates so far", ["run"], **about)
        self._running = gauge("ringlet_running", "1 while the run is going on", ["run"], **about)
        self._about = gauge("ringlet_run_info", "What the run is", ["run", "model", "dataset", "workers"], **about)
        self._running.labels(self._run).set(1)
        if self._port is not None:
            self._serve(self._port)
        if self._path is not None:
            self._check_file(self._path)

    def _serve(self, port: int) -> None:
        try:
            self._server = self._client.start_http_server(port, addr=_ADDRESS, registry=self.registry)
        except OSError as error:
            raise UsageError(f"prometheus: port {port} cannot be used: {error.strerror}. Choose another") from None

    def _check_file(self, path: Path) -> None:
        try:
            write_whole(path, self._client.generate_latest(self.registry), durable=False)
        except FileWriteError as error:
            raise UsageError(f"prometheus {error}") from None

    def describe(self, event: RunStarted) -> None:
        """Network, data and workers, as labels."""
        self._about.labels(self._run, event.model, event.dataset, str(event.num_workers)).set(1)
        self._write()

    def resume(self, step: int) -> None:
        """The newest metrics are those from before it."""
        self._step.labels(self._run).set(step)

    def write(self, step: int, values: Values) -> None:
        """Set gauges; the file follows now and then."""
        self._step.labels(self._run).set(step)
        for name, value in values.items():
            kind, _, figure = name.partition("/")
            if figure:
                self._labelled[kind].labels(self._run, figure).set(value)
            else:
                self._singles[name].labels(self._run).set(value)
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._write()

    def end(self, outcome: str) -> None:  # noqa: ARG002
        """The last metrics stay in the file, with ``ringlet_running`` at 0; a port is given back."""
        self._running.labels(self._run).set(0)
        self._write()
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    def _write(self) -> None:
        self._written = time.monotonic()
        path = self._path
        if path is not None:
            self.save(lambda: write_whole(path, self._client.generate_latest(self.registry), durable=False))


@final
class PrometheusConfig(TrackerConfig):
    """Prometheus: a file for the node exporter, or a port to be scraped."""

    name: ClassVar[str] = "prometheus"
    argument: ClassVar[str] = "target"
    library: ClassVar[str | None] = "prometheus_client"
    target: str | None = option(None, "file or port; default: the file metrics.prom in the run directory")

    def contradictions(self) -> Iterable[Problem]:
        """A port that is none."""
        if self.target and self.target.isascii() and self.target.isdecimal() and not 1 <= int(self.target[:9]) <= 65535:
            yield Problem("target", f"{self.target}: expected a port of 1 to 65535, or a file")

    def build(self, run_directory: Path) -> Prometheus:
        """The tracker of a run."""
        name = run_directory.resolve().name
        if self.target and self.target.isascii() and self.target.isdecimal():
            return Prometheus(port=int(self.target), run=name)
        return Prometheus(self.target or run_directory / FILE, run=name)
