"""A whole run in its run directory, as ``ringlet train`` does it: what :meth:`Session.run` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ringlet.data import Source
from ringlet.errors import DivergedError, InterruptedRunError
from ringlet.guards import faults
from ringlet.io.disk import Saving, write_whole
from ringlet.launch.restarts import current_attempt, restart_cause
from ringlet.machine import software_versions
from ringlet.timeline import RecordedTimeline
from ringlet.training.events import (
    BestRestored,
    Evaluated,
    EventLog,
    ModelSaved,
    RunEnded,
    RunRestarted,
    RunResumed,
    RunStarted,
    TrainingFinished,
    TrainingStopped,
)
from ringlet.training.observers import ModelFiles, Observer, Observers, Stop, interruptible
from ringlet.training.progress import History, RunResult
from ringlet.training.resuming import set_aside
from ringlet.training.run_directory import RunDirectory, create_run_directory, is_continued
from ringlet.training.trace import gather_timelines, phase_seconds, write_trace

if TYPE_CHECKING:
    from ringlet.training.session import Session

Trackers = Callable[[Path], Sequence[Observer]]
"""Makes the observers that write into a run directory, once there is one."""


def no_trackers(_: Path) -> Sequence[Observer]:
    """No one writes into the run directory but the run itself."""
    return ()


def run(session: Session, observers: Iterable[Observer], trackers: Trackers) -> RunResult:
    """See :meth:`Session.run`."""
    if session.config.training.evaluate_only:
        result = _empty_result(session)
        result.test = _evaluate(session, "only", Observers(observers if session.is_leader else ()))
        return result
    with session.held:
        if not session.is_leader:
            return _run_in(session, None, None, ())
        directory = _open_directory(session)
        kept = 0 if session.continuation is None else session.continuation.events_bytes
        with closing(EventLog(directory.events, cut_at=kept, say=session.say)) as log:
            return _run_in(session, directory, log, (*observers, *trackers(directory.path)))


def _open_directory(session: Session) -> RunDirectory:
    """The run's directory, locked: a new one, or that of the run to resume without what it superseded."""
    if not is_continued(session.config):
        directory, lock = create_run_directory(session.config)
        session.held.callback(lock.release)
        return directory
    directory = RunDirectory.of(session.config)
    if session.continuation is None:
        session.say("no checkpoint found; starting from scratch")
    else:
        set_aside(directory, session.continuation, session.say)
    return directory


def _run_in(
    session: Session, directory: RunDirectory | None, log: EventLog | None, observers: Iterable[Observer]
) -> RunResult:
    """Do the run in a directory, with its log; ranks that do not lead have neither."""
    saving, place = Saving(session.say), RunDirectory(Path()) if directory is None else directory
    models = ModelFiles(session.save, place.model, place.best_model, place.last_model, saving)
    own: list[Observer] = [] if log is None else [models, log]
    kept = session.checkpointers(place.checkpoints, session.say, log, saving)
    told = Observers([*own, *observers, *kept, *session.pictures(place.pictures, session.say)])
    try:
        result = _train_and_evaluate(session, directory, models, saving, told)
    except BaseException as error:
        with suppress(OSError):  # perhaps the log is what failed
            told(RunEnded(_outcome(error), str(error) or type(error).__name__))
        raise
    told(RunEnded("finished", result.stopped or ""))
    return result


def _train_and_evaluate(
    session: Session, directory: RunDirectory | None, models: ModelFiles, saving: Saving, told: Observers
) -> RunResult:
    config, progress, result = session.config, session.progress, _empty_result(session)
    _tell_start(session, told)
    if config.training.evaluate and session.continuation is None:
        result.test_before = _evaluate(session, "before", told)
    stop, finished = _train(session, models, told)
    history = History.of(progress, stop)
    history.stopped = history.stopped or _left_early(session)
    result.take(finished, history)
    if directory is not None:
        result.run_dir, result.model_file = str(directory.path), str(directory.model)
        if models.write(progress.num_epochs, progress.num_steps):
            told(ModelSaved(result.model_file, progress.num_epochs, progress.num_steps))
        if config.output.history_file is not None:
            target, text = Path(config.output.history_file), history.to_json().encode()
            saving.attempt("history file", lambda: write_whole(target, text), is_needed=True)
    _conclude_timeline(session, result, saving)
    if history.interrupted:
        saving.check()
        saved = "" if directory is None else f": {directory.model}. To go on: ringlet resume {directory.path}"
        raise InterruptedRunError(
            f"{history.stopped} in epoch {progress.running_epoch} after {progress.num_steps} updates. "
            f"The model is saved{saved}"
        )
    result.best = _use_best(session, models if directory is not None else None, told)
    faults.reach("exit", session.comm.rank, progress.num_steps)
    if config.training.evaluate is not False and session.dataset.test is not None:
        result.test = _evaluate(session, "after", told, directory, saving)
    saving.check()
    return result


def _use_best(session: Session, models: ModelFiles | None, told: Observers) -> dict[str, Any] | None:
    """Let the weights of the best epoch be those of the run, in its model file too; the last ones get their own."""
    if (lost := session.best.lost) is not None:
        session.say(
            f"the weights of epoch {lost.epoch}, the best by {lost.metric}, were not kept: the last ones are used"
        )
    best, progress = session.best.epoch, session.progress
    if best is None:
        return None
    if best.step != progress.num_steps:
        if models is not None:
            models.write_last(progress.num_epochs, progress.num_steps)
        session.best.use("best")
        told(BestRestored(best.epoch, best.step, best.metric, best.value))
        if models is not None and models.replace(best.epoch, best.step):
            told(ModelSaved(str(models.path), best.epoch, best.step))
    return asdict(best)


def _train(session: Session, models: ModelFiles, told: Observers) -> tuple[Stop | None, TrainingFinished]:
    """Train until the last epoch; signals may ask to stop."""
    progress = session.progress
    try:
        with interruptible(told.control):
            return session.train(_last_epoch(session), told)
    except DivergedError as error:
        told(TrainingStopped(progress.num_epochs + 1, progress.num_steps, str(error)))
        if models.epoch is None:
            raise
        raise DivergedError(f"{error}\n{models.path} holds the model after epoch {models.epoch}") from None


def _last_epoch(session: Session) -> int:
    """The epoch after which this run leaves; one that has come further stays where it is."""
    training = session.config.training
    wanted = training.num_epochs if training.stop_after is None else min(training.num_epochs, training.stop_after)
    return max(wanted, session.progress.num_epochs)


def _left_early(session: Session) -> str | None:
    """Why a run that nothing has stopped has epochs left, if so."""
    training, done = session.config.training, session.progress.num_epochs
    if training.stop_after is None or done >= training.num_epochs:
        return None
    return f"left after epoch {done} of {training.num_epochs}, as stop_after = {training.stop_after} says"


def _tell_start(session: Session, told: Observers) -> None:
    """Say what begins: a new run, or one that resumes; perhaps after a restart."""
    versions = software_versions()
    progress, config = session.progress, session.config
    if session.continuation is None:
        told(_started(session, versions))
    else:
        about = progress.num_epochs, progress.num_steps, config.training.num_epochs, session.comm.size
        told(RunResumed(*about, config.engine.name, versions))
        if progress.stopped is not None:
            told.control.stop(progress.stopped)
    if number := current_attempt():
        told(RunRestarted(number, restart_cause()))


def _started(session: Session, versions: dict[str, str]) -> RunStarted:
    dataset, comm = session.dataset, session.comm
    return RunStarted(
        model=session.spec.name,
        dataset=dataset.name,
        num_parameters=session.spec.num_parameters,
        num_train_samples=_size(dataset.train),
        num_validation_samples=_size(dataset.validation),
        num_test_samples=_size(dataset.test),
        num_epochs=session.config.training.num_epochs,
        global_batch_size=session.global_batch_size,
        num_workers=comm.size,
        num_machines=len(comm.local_sizes),
        communicator=comm.name,
        num_shards=session.num_shards,
        engine=session.config.engine.name,
        device=session.device,
        kernels=session.kernels.name,
        config=session.config.flat(),
        versions=versions,
    )


def _empty_result(session: Session) -> RunResult:
    spec = session.spec
    return RunResult(spec.name, session.dataset.name, spec.num_parameters, num_workers=session.comm.size)


def _evaluate(
    session: Session,
    moment: str,
    told: Observers,
    directory: RunDirectory | None = None,
    saving: Saving | None = None,
) -> dict[str, float]:
    """Evaluate on the test data and tell everyone; the report is kept in ``directory``."""
    start = perf_counter()
    report = session.report("test")
    told(Evaluated(moment, report.metrics, report.num_samples, perf_counter() - start))
    if directory is not None and saving is not None:
        saving.attempt("evaluation report", lambda: report.write(directory.evaluation))
    return report.metrics


def _conclude_timeline(session: Session, result: RunResult, saving: Saving) -> None:
    """Put the workers' timelines together; every worker must call."""
    config = session.config
    if not isinstance(session.recorded, RecordedTimeline):
        return
    timelines = gather_timelines(session.recorded, session.comm)
    result.profile = [phase_seconds(own) for own in timelines] if config.output.profile else None
    if session.is_leader and config.output.timeline is not None:
        target = Path(config.output.timeline)
        saving.attempt("timeline", lambda: write_trace(target, timelines), is_needed=True)


def _outcome(error: BaseException) -> str:
    """How a run ended that raised ``error``."""
    if isinstance(error, InterruptedRunError | KeyboardInterrupt):
        return "interrupted"
    return "diverged" if isinstance(error, DivergedError) else "failed"


def _size(source: Source | None) -> int:
    return 0 if source is None else len(source)
