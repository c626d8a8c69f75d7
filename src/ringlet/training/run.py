"""A whole run, as ``ringlet train`` does it: check everything, then train, evaluate and keep the run directory."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, final

import numpy as np

from ringlet import __version__
from ringlet.config import RunConfig
from ringlet.data import Source
from ringlet.errors import DivergedError, InterruptedRunError, UsageError
from ringlet.training.callbacks import Announcer, Callback, SaveModel
from ringlet.training.events import (
    Evaluated,
    Event,
    EventLog,
    ModelSaved,
    RunStarted,
    TrainingFinished,
    TrainingStopped,
)
from ringlet.training.history import History
from ringlet.training.interrupts import Control, interruptible
from ringlet.training.run_directory import RunDirectory, check_run_directory, create_run_directory
from ringlet.training.trainer import Trainer


@dataclass
class RunResult:
    """What a run gave; figures are shares and losses, not per cent."""

    model: str
    dataset: str
    num_parameters: int
    run_dir: str | None = None
    model_file: str | None = None
    num_epochs: int = 0
    num_steps: int = 0
    num_samples: int = 0
    seconds: float = 0.0
    samples_per_second: float = 0.0
    stopped: str | None = None
    test_before: dict[str, float] | None = None
    test: dict[str, float] | None = None
    epochs: list[dict[str, float]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@final
class Run:
    """A checked run: everything that can be wrong with its input has been found when this object exists."""

    def __init__(self, config: RunConfig) -> None:
        check_run_directory(config)
        _check_history_file(config)
        self.config = config
        self.trainer = Trainer(config=config)
        self.remarks = [*config.notes(), *self.trainer.remarks]
        if (config.evaluate or config.evaluate_only) and self.trainer.dataset.test is None:
            raise UsageError(
                f"data set '{config.dataset}' has no test data: leave --evaluate out or give a path for it"
            )

    def execute(self, callbacks: Sequence[Callback] = ()) -> RunResult:
        """Do it. A divergence raises DivergedError, an interruption InterruptedRunError after saving."""
        if self.config.evaluate_only:
            return self._evaluate_only(callbacks)
        directory = create_run_directory(self.config)
        log = EventLog(directory.events)
        try:
            return _Execution(self, directory, [log, *callbacks]).run()
        finally:
            log.close()

    def _evaluate_only(self, callbacks: Sequence[Callback]) -> RunResult:
        result = self.empty_result()
        result.test = self.evaluate("only", Announcer(callbacks, Control()))
        return result

    def empty_result(self) -> RunResult:
        """A result without figures."""
        spec = self.trainer.spec
        return RunResult(spec.name, self.trainer.dataset.name, spec.num_parameters)

    def evaluate(self, moment: str, announce: Announcer) -> dict[str, float]:
        """Evaluate on the test data and tell everybody."""
        start = perf_counter()
        figures = self.trainer.evaluate("test")
        announce(Evaluated(moment, figures, _size(self.trainer.dataset.test), perf_counter() - start))
        return figures

    def started(self) -> RunStarted:
        """The first event: what is about to happen."""
        trainer = self.trainer
        return RunStarted(
            model=trainer.spec.name,
            dataset=trainer.dataset.name,
            num_parameters=trainer.spec.num_parameters,
            num_train_samples=_size(trainer.dataset.train),
            num_validation_samples=_size(trainer.dataset.validation),
            num_test_samples=_size(trainer.dataset.test),
            num_epochs=self.config.num_epochs,
            global_batch_size=self.config.samples_per_step,
            kernels=trainer.replica.kernels.name,
            config=self.config.to_dict(),
            versions={"ringlet": __version__, "python": platform.python_version(), "numpy": np.__version__},
        )


class _Execution:
    """One pass through a run: its directory, its control and everybody who listens."""

    def __init__(self, run: Run, directory: RunDirectory, listeners: Sequence[Callback]) -> None:
        self.run_, self.directory, self.control = run, directory, Control()
        self.finished: TrainingFinished | None = None
        self.save = SaveModel(run.trainer.save, directory.model, directory.best_model)
        self.announce = Announcer(listeners, self.control)
        run.trainer.callbacks = (self._keep, self.save, *listeners)

    def run(self) -> RunResult:
        config, result = self.run_.config, self.run_.empty_result()
        result.run_dir = str(self.directory.path)
        self.announce(self.run_.started())
        if config.evaluate:
            result.test_before = self.run_.evaluate("before", self.announce)
        history = self._train()
        self._save_model(result)
        self._record(result, history)
        self._write_history(history)
        if self.control.interrupted:
            raise self._interruption()
        if config.evaluate is not False and self.run_.trainer.dataset.test is not None:
            result.test = self.run_.evaluate("after", self.announce)
        return result

    def _keep(self, event: Event) -> None:
        if isinstance(event, TrainingFinished):
            self.finished = event

    def _train(self) -> History:
        progress = self.run_.trainer.progress
        try:
            with interruptible(self.control):
                return self.run_.trainer.fit(control=self.control)
        except DivergedError as error:
            self.announce(TrainingStopped(progress.num_epochs + 1, progress.num_steps, str(error)))
            kept = f"\n{self.directory.model} holds the model after epoch {progress.num_epochs}"
            raise DivergedError(f"{error}{kept if self.save.saved else ''}") from None

    def _save_model(self, result: RunResult) -> None:
        """Save what was reached, unless the last epoch's file holds just that."""
        progress, path = self.run_.trainer.progress, self.directory.model
        result.model_file = str(path)
        if not self.save.saved or self.save.saved[-1].step != progress.num_steps:
            self.run_.trainer.save(path)
        self.announce(ModelSaved(str(path), progress.num_epochs, progress.num_steps))

    def _record(self, result: RunResult, history: History) -> None:
        assert self.finished is not None
        result.num_epochs, result.num_steps = self.finished.num_epochs, self.finished.num_steps
        result.num_samples, result.seconds = self.finished.num_samples, self.finished.seconds
        result.samples_per_second = self.finished.samples_per_second
        result.stopped, result.epochs = history.stopped, history.epochs

    def _write_history(self, history: History) -> None:
        if self.run_.config.history_file is not None:
            target = Path(self.run_.config.history_file)
            draft = target.with_name(f".{target.name}.partial")
            draft.write_text(history.to_json(), encoding="utf-8")
            draft.replace(target)

    def _interruption(self) -> InterruptedRunError:
        progress = self.run_.trainer.progress
        return InterruptedRunError(
            f"{self.control.reason} in epoch {progress.num_epochs + 1} after {progress.num_steps} updates. "
            f"The model is saved: {self.directory.model}"
        )


def _size(source: Source | None) -> int:
    return 0 if source is None else len(source)


def _check_history_file(config: RunConfig) -> None:
    if config.history_file is not None:
        folder = Path(config.history_file).parent
        if not folder.is_dir():
            raise UsageError(f"history_file '{config.history_file}': folder '{folder}' does not exist. Make it first")
        if Path(config.history_file).is_dir():
            raise UsageError(f"history_file '{config.history_file}' is a folder: give the name of a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"history_file '{config.history_file}': folder '{folder}' is not writable. Choose another")
