"""MLflow: parameters, metrics and the outcome of a run, through MLflow's client."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, ClassVar, final

from ringlet.component import option
from ringlet.errors import UsageError
from ringlet.libraries import require
from ringlet.trackers.base import Tracker, Values, finite
from ringlet.trackers.registry import TrackerConfig
from ringlet.training.events import RunStarted

EXPERIMENT = "ringlet"
RUN_ID_FILE = "mlflow-run"
URI_VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE = "mlflow.db"
_FLUSH_SECONDS = 5.0
_MAX_BATCH = 1000
_MAX_WAITING = 100_000
_MAX_PARAMETER = 500
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}


@final
class MLflow(Tracker):
    """Logs to the store or server at ``uri``, as a run called ``name`` of the experiment "ringlet".

    ``memory`` is a file that keeps the id of the MLflow run, so that a resumed run continues it. MLflow cannot
    take back what it has: points that it holds already are not sent again.
    """

    def __init__(self, uri: str, *, name: str = "", memory: Path | None = None, experiment: str = EXPERIMENT) -> None:
        super().__init__()
        self._uri, self._name, self._memory, self._experiment = uri, name, memory, experiment
        self._waiting: list[Any] = []
        self._known: dict[str, int] | None = None
        self._sent = 0.0

    def open(self) -> None:
        """Connect, and take up the MLflow run that was begun before, if there is one."""
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        tracking, self._entities = require("mlflow.tracking"), require("mlflow.entities")
        exceptions = require("mlflow.exceptions")
        try:
            self._client = tracking.MlflowClient(tracking_uri=self._uri)
            self.run_id = self._resumed() or self._begin()
        except (exceptions.MlflowException, ImportError, OSError) as error:
            raise UsageError(f"MLflow cannot log to '{self._uri}': {error}") from error

    def _begin(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run_id: str = self._client.create_run(number, run_name=self._name or None).info.run_id
        if self._memory is not None:
            self._memory.write_text(f"{run_id}\n", encoding="utf-8")
        return run_id

    def _resumed(self) -> str | None:
        if self._memory is None or not self._memory.is_file():
            return None
        run_id = self._memory.read_text(encoding="utf-8").strip()
        self._client.update_run(run_id, status="RUNNING")
        self._known = {}
        return run_id

    def describe(self, event: RunStarted) -> None:
        """Options as parameters."""
        if self._known is not None:
            return  # MLflow has them, and refuses others
        values = {**event.config, "num_workers": event.num_workers, "num_parameters": event.num_parameters}
        parameters = [self._entities.Param(name, str(value)[:_MAX_PARAMETER]) for name, value in values.items()]
        for start in range(0, len(parameters), 100):
            self._client.log_batch(self.run_id, params=parameters[start : start + 100])

    def resume(self, step: int) -> None:
        """What MLflow holds of later steps stays: the same steps give the same points again."""

    def write(self, step: int, values: Values) -> None:
        """Collect metrics and send them now and then; what is not finite is left out, as not all stores keep it."""
        now = int(1000 * time.time())
        fresh = {name: value for name, value in finite(values).items() if step > self._last_known(name)}
        self._waiting += [self._entities.Metric(name, value, now, step) for name, value in fresh.items()]
        if len(self._waiting) >= _MAX_BATCH or time.monotonic() - self._sent >= _FLUSH_SECONDS:
            self._send()

    def _last_known(self, name: str) -> int:
        """The last step of a metric that an earlier attempt has sent."""
        if self._known is None:
            return -1
        if name not in self._known:
            history = self._client.get_metric_history(self.run_id, name)
            self._known[name] = max((metric.step for metric in history), default=-1)
        return self._known[name]

    def end(self, outcome: str) -> None:
        """Send the rest and say how the run ended."""
        self._send()
        self.save(lambda: self._client.set_terminated(self.run_id, status=_STATUS.get(outcome, "FAILED")))

    def _send(self) -> None:
        """Send what waits; what the disk of a local store does not take waits for the next time, the newest of it."""
        if not self.save(self._send_all):
            del self._waiting[:-_MAX_WAITING]
        self._sent = time.monotonic()

    def _send_all(self) -> None:
        while self._waiting:
            self._client.log_batch(self.run_id, metrics=self._waiting[:_MAX_BATCH])
            del self._waiting[:_MAX_BATCH]


@final
class MLflowConfig(TrackerConfig):
    """MLflow: metrics and parameters of a tracking server or database."""

    name: ClassVar[str] = "mlflow"
    argument: ClassVar[str] = "uri"
    library: ClassVar[str | None] = "mlflow"
    uri: str | None = option(
        None, "tracking server or database; default: MLFLOW_TRACKING_URI, else a database beside the run directory"
    )

    def build(self, run_directory: Path) -> MLflow:
        """The tracker of a run."""
        folder = run_directory.resolve()
        uri = self.uri or os.environ.get(URI_VARIABLE) or f"sqlite:///{folder.parent / DATABASE}"
        return MLflow(uri, name=folder.name, memory=folder / RUN_ID_FILE)
