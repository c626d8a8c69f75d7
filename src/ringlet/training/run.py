"""A whole run, as ``ringlet train`` does it: check everything, then train, evaluate and keep the run directory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, final

from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import Source
from ringlet.errors import DivergedError, InterruptedRunError, UsageError
from ringlet.guards import faults
from ringlet.io.disk import Saving, write_whole
from ringlet.launch.restarts import current_attempt, restart_cause
from ringlet.machine import software_versions
from ringlet.timeline import NO_TIMELINE, RecordedTimeline
from ringlet.training.callbacks import Announcer, Callback, SaveModel
from ringlet.training.devices import join_workers
from ringlet.training.events import (
    Evaluated,
    Event,
    EventLog,
    ModelSaved,
    RunEnded,
    RunRestarted,
    RunResumed,
    RunStarted,
    TrainingFinished,
    TrainingStopped,
)
from ringlet.training.history import History
from ringlet.training.interrupts import Control, interruptible
from ringlet.training.pictures import remove_pictures_after
from ringlet.training.resuming import find_continuation, lock_run, with_same_steps
from ringlet.training.run_directory import (
    RunDirectory,
    check_run_directory,
    create_run_directory,
    is_continued,
    run_path,
)
from ringlet.training.run_lock import RunLock
from ringlet.training.superseding import supersede
from ringlet.training.trace import gather_timelines, phase_seconds, write_trace
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
    num_workers: int = 1
    profile: list[dict[str, float]] | None = None
    """Seconds of each phase, one entry per worker."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def no_callbacks(_: Path) -> Sequence[Callback]:
    """Nobody writes into the run directory but the run itself."""
    return ()


@final
class Run:
    """A checked run: everything that can be wrong with its input has been found when this object exists.

    With several workers each of them makes the same run and executes it; only the leader, rank 0, writes files and
    tells callbacks.
    """

    def __init__(self, config: RunConfig, communicator: Communicator | None = None) -> None:
        comm = join_workers(config) if communicator is None else communicator
        self.is_leader = comm.rank == 0
        self.remarks = config.notes()
        self._lock: RunLock | None = None
        if self.is_leader:
            check_run_directory(config)
            check_output_file("history_file", config.history_file)
            check_output_file("timeline", config.timeline)
            if is_continued(config) and not config.evaluate_only:
                self._lock = lock_run(config)
        try:
            self._prepare(config, comm)
        except BaseException:
            self._unlock()
            raise

    def _prepare(self, config: RunConfig, comm: Communicator) -> None:
        """Find the checkpoint to resume from, if any, and assemble everything; every rank must call."""
        self.continuation = find_continuation(comm, config, self.remarks.append)
        if self.continuation is not None:
            config, remarks = with_same_steps(config, self.continuation, comm.size)
            self.remarks += remarks
        self.config = config
        self.timeline = RecordedTimeline() if config.profile or config.timeline else None
        self.trainer = Trainer(
            config=config,
            communicator=comm,
            timeline=self.timeline or NO_TIMELINE,
            scaling_shards=None if self.continuation is None else self.continuation.num_shards,
        )
        self.remarks += self.trainer.remarks
        if (config.evaluate or config.evaluate_only) and self.trainer.dataset.test is None:
            raise UsageError(
                f"data set '{config.dataset}' has no test data: leave --evaluate out or give a path for it"
            )
        if self.continuation is not None:
            self.trainer.go_on(self.continuation, self.remarks.append)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def execute(
        self, callbacks: Sequence[Callback] = (), make_callbacks: Callable[[Path], Sequence[Callback]] = no_callbacks
    ) -> RunResult:
        """Do it. A divergence raises DivergedError, an interruption InterruptedRunError after saving.

        ``make_callbacks`` is given the run directory, once there is one, and makes those that write into it.
        """
        if not self.is_leader:
            callbacks = ()
        if self.config.evaluate_only:
            return self._evaluate_only(callbacks)
        if not self.is_leader:
            return _Execution(self, None, ()).run()
        return self._lead(callbacks, make_callbacks)

    def _lead(self, callbacks: Sequence[Callback], make_callbacks: Callable[[Path], Sequence[Callback]]) -> RunResult:
        """What rank 0 does: it has the directory, its lock and the log."""
        try:
            return self._write_run(self._open_directory(), callbacks, make_callbacks)
        finally:
            self._unlock()

    def _open_directory(self) -> RunDirectory:
        """The run's directory, locked: a new one, or that of the run to resume without what it superseded."""
        if not is_continued(self.config):
            directory, self._lock = create_run_directory(self.config)
            return directory
        directory = RunDirectory(run_path(self.config))
        if self.continuation is None:
            self.say("no checkpoint found; starting from scratch")
        else:
            supersede(directory, self.continuation, self.say)
            remove_pictures_after(directory.pictures, self.continuation.epoch)
        return directory

    def _write_run(
        self,
        directory: RunDirectory,
        callbacks: Sequence[Callback],
        make_callbacks: Callable[[Path], Sequence[Callback]],
    ) -> RunResult:
        """Do the run with its log."""
        kept = 0 if self.continuation is None else self.continuation.events_bytes
        log = EventLog(directory.events, cut_at=kept, say=self.say, besides=self.besides)
        listeners = [log, *callbacks, *make_callbacks(directory.path)]
        announce = Announcer(listeners, Control())
        try:
            result = _Execution(self, directory, listeners, log.position).run()
        except BaseException as error:
            with suppress(OSError):  # perhaps the log is what failed
                announce(RunEnded(_outcome(error), str(error) or type(error).__name__))
            raise
        else:
            announce(RunEnded("finished", result.stopped or ""))
            return result
        finally:
            log.close()

    def say(self, message: str) -> None:
        """A remark while the run is going on; replaced by whoever shows it."""
        warnings.warn(message, stacklevel=2)

    def besides(self) -> Sequence[Event]:
        """What else the log is to tell, asked before every event; replaced by the caller who knows of such."""
        return ()

    def _evaluate_only(self, callbacks: Sequence[Callback]) -> RunResult:
        result = self.empty_result()
        result.test = self.evaluate("only", Announcer(callbacks, Control()))
        return result

    def empty_result(self) -> RunResult:
        """A result without figures."""
        spec = self.trainer.spec
        return RunResult(spec.name, self.trainer.dataset.name, spec.num_parameters, num_workers=self.trainer.comm.size)

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
            global_batch_size=trainer.global_batch_size,
            num_workers=trainer.comm.size,
            num_machines=len(trainer.comm.local_sizes),
            communicator=trainer.comm.name,
            num_shards=trainer.num_shards,
            engine=self.config.engine,
            device=trainer.device,
            kernels=trainer.kernels.name,
            config=self.config.to_dict(),
            versions=software_versions(),
        )


class _Execution:
    """One pass through a run: its directory (the leader's), its control and everybody who listens."""

    def __init__(
        self,
        run: Run,
        directory: RunDirectory | None,
        listeners: Sequence[Callback],
        events_position: Callable[[], int] = int,
    ) -> None:
        self.run_, self.directory, self.control = run, directory, Control()
        place = RunDirectory(Path()) if directory is None else directory
        self.saving = Saving(run.say)
        run.trainer.keep_checkpoints(place.checkpoints, run.say, events_position, self.saving)
        run.trainer.keep_pictures(place.pictures, run.say)
        self.finished: TrainingFinished | None = None
        paths = (directory.model, directory.best_model) if directory else None
        self.save = SaveModel(run.trainer.save, *paths, self.saving) if paths else None
        self.announce = Announcer(listeners, self.control)
        run.trainer.callbacks = (self._keep, *([self.save] if self.save else []), *listeners)

    def run(self) -> RunResult:
        config, result = self.run_.config, self.run_.empty_result()
        result.run_dir = str(self.directory.path) if self.directory else None
        self._begin()
        if config.evaluate and self.run_.continuation is None:
            result.test_before = self.run_.evaluate("before", self.announce)
        history = self._train()
        self._record(result, history)
        if self.directory is not None:
            self._save_model(result, self.directory)
            self._write_history(history)
        self._conclude_timeline(result)
        if history.interrupted:
            self.saving.check()
            raise self._interruption(history)
        faults.reach("exit", self.run_.trainer.comm.rank, self.run_.trainer.progress.num_steps)
        if config.evaluate is not False and self.run_.trainer.dataset.test is not None:
            result.test = self.run_.evaluate("after", self.announce)
        self.saving.check()
        return result

    def _begin(self) -> None:
        """Say what begins: a new run, or one that resumes."""
        trainer = self.run_.trainer
        if self.run_.continuation is None:
            self.announce(self.run_.started())
            self._tell_of_restart()
            return
        progress = trainer.progress
        about = progress.num_epochs, progress.num_steps, self.run_.config.num_epochs, trainer.comm.size
        self.announce(RunResumed(*about, self.run_.config.engine, self.run_.started().versions))
        self._tell_of_restart()
        if progress.stopped is not None:
            self.control.stop(progress.stopped)

    def _tell_of_restart(self) -> None:
        number = current_attempt()
        if number:
            self.announce(RunRestarted(number, restart_cause()))

    def _keep(self, event: Event) -> None:
        if isinstance(event, TrainingFinished):
            self.finished = event

    def _train(self) -> History:
        progress = self.run_.trainer.progress
        try:
            with interruptible(self.control):
                history = self.run_.trainer.fit(self._num_epochs_left(), control=self.control)
                return History(progress.epochs, history.stopped, history.interrupted)
        except DivergedError as error:
            self.announce(TrainingStopped(progress.num_epochs + 1, progress.num_steps, str(error)))
            kept_epoch = None if self.save is None else self.save.epoch
            if self.directory is None or kept_epoch is None:
                raise
            kept = f"{self.directory.model} holds the model after epoch {kept_epoch}"
            raise DivergedError(f"{error}\n{kept}") from None

    def _num_epochs_left(self) -> int:
        return max(self.run_.config.num_epochs - self.run_.trainer.progress.num_epochs, 0)

    def _save_model(self, result: RunResult, directory: RunDirectory) -> None:
        """Save what was reached, unless the last epoch's file holds just that."""
        progress, path = self.run_.trainer.progress, directory.model
        result.model_file = str(path)
        if self.save is not None and self.save.write(progress.num_epochs, progress.num_steps):
            self.announce(ModelSaved(str(path), progress.num_epochs, progress.num_steps))

    def _record(self, result: RunResult, history: History) -> None:
        assert self.finished is not None
        result.num_epochs, result.num_steps = self.finished.num_epochs, self.finished.num_steps
        result.num_samples, result.seconds = self.finished.num_samples, self.finished.seconds
        result.samples_per_second = self.finished.samples_per_second
        result.stopped, result.epochs = history.stopped, history.epochs

    def _write_history(self, history: History) -> None:
        if self.run_.config.history_file is not None:
            target, text = Path(self.run_.config.history_file), history.to_json().encode()
            self.saving.attempt("history file", lambda: write_whole(target, text), is_needed=True)

    def _conclude_timeline(self, result: RunResult) -> None:
        """Put the workers' timelines together; every worker must call."""
        timeline, comm = self.run_.timeline, self.run_.trainer.comm
        if timeline is None:
            return
        timelines = gather_timelines(timeline, comm)
        result.profile = [phase_seconds(own) for own in timelines] if self.run_.config.profile else None
        if self.run_.is_leader and self.run_.config.timeline is not None:
            target = Path(self.run_.config.timeline)
            self.saving.attempt("timeline", lambda: write_trace(target, timelines), is_needed=True)

    def _interruption(self, history: History) -> InterruptedRunError:
        progress, directory = self.run_.trainer.progress, self.directory
        saved = "" if directory is None else f": {directory.model}. To go on: ringlet resume {directory.path}"
        return InterruptedRunError(
            f"{history.stopped} in epoch {progress.running_epoch} after {progress.num_steps} updates. "
            f"The model is saved{saved}"
        )


def _outcome(error: BaseException) -> str:
    """How a run ended that raised ``error``."""
    if isinstance(error, InterruptedRunError | KeyboardInterrupt):
        return "interrupted"
    return "diverged" if isinstance(error, DivergedError) else "failed"


def _size(source: Source | None) -> int:
    return 0 if source is None else len(source)


def check_output_file(name: str, path: str | None) -> None:
    """Refuse a file that could not be written at the end of the run."""
    if path is not None:
        folder = Path(path).parent
        if not folder.is_dir():
            raise UsageError(f"{name} '{path}': folder '{folder}' does not exist. Make it first")
        if Path(path).is_dir():
            raise UsageError(f"{name} '{path}' is a folder: give the name of a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{name} '{path}': folder '{folder}' is not writable. Choose another")
