"""Resuming a run: the lock of its directory, which checkpoint, and what may differ from the run that wrote it.

The command line and :meth:`Trainer.fit` resume by the same steps: lock, find the checkpoint, take over its state, set
aside what came after it: in a run directory of its own, never deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ringlet.checkpoint import Checkpoint, CheckpointStore
from ringlet.checkpoint.atomic import make_directory
from ringlet.comm.contract import Communicator
from ringlet.config import ResumePoint, RunConfig, gather
from ringlet.data.formats import GivenDataset
from ringlet.errors import CheckpointError, ModelFileError, UsageError
from ringlet.io.disk import Say, synchronise
from ringlet.launch.restarts import current_attempt
from ringlet.models.files import load_model_file
from ringlet.models.momentum import momentum_of
from ringlet.models.spec import ModelSpec
from ringlet.training.pictures import pictures_after, remove_pictures_after
from ringlet.training.run_directory import (
    BEST_MODEL,
    CHECKPOINTS,
    CONFIG,
    EVENTS,
    LAST_MODEL,
    MODEL,
    SUPERSEDED,
    RunDirectory,
    run_path,
    superseded_runs,
)
from ringlet.training.run_lock import RunLock

RESTART_PATIENCE = 20.0
"""How many seconds a restarted job waits for the last of the attempt before it to end."""


@dataclass(frozen=True)
class Continuation:
    """A checkpoint to resume from; only rank 0 holds its arrays."""

    step: int
    epoch: int
    global_batch_size: int
    num_workers: int
    num_shards: int
    events_bytes: int
    """How long the event log was: what follows did not happen."""
    checkpoint: Checkpoint | None
    stratified: bool = False
    """Whether its validation data were chosen class by class; earlier versions did not."""
    best_step: int | None = None
    """After how many updates the best epoch so far was over, if its weights are still there."""
    best: Mapping[str, NDArray[Any]] | None = None
    """Those weights; only rank 0 holds them."""
    momentum: float | None = None
    """Of its batch norms, if they have one."""


def lock_run(config: RunConfig) -> RunLock:
    """Lock the run's directory, which exists; rank 0 calls, before it looks at anything in it.

    A restarted job knows that its launcher has ended the attempt before, on whichever machine that was.
    """
    is_restart = current_attempt() > 0
    patience = RESTART_PATIENCE if is_restart else 0.0
    return RunLock.acquire(run_path(config), break_lock=config.checkpoint.break_lock or is_restart, patience=patience)


def find_continuation(comm: Communicator, config: RunConfig, say: Say) -> Continuation | None:
    """The checkpoint that ``checkpoint.resume`` names, chosen by rank 0; None without one. All ranks must call.

    Options that would make another run of it are refused.
    """
    point = ResumePoint.parse(config.checkpoint.resume)
    if point is None:
        return None
    checkpoint = _find(config, point, say) if comm.rank == 0 else None
    best: Mapping[str, NDArray[Any]] | None = None
    about: list[int | float | None] | None = None
    if checkpoint is not None:
        training = checkpoint.training
        progress = training.get("progress", {})
        names = ("global_batch_size", "num_workers", "num_shards", "events_bytes")
        numbers = (checkpoint.step, progress.get("num_epochs"), *map(training.get, names))
        if not all(isinstance(number, int) for number in numbers):
            raise CheckpointError(f"the checkpoint of step {checkpoint.step} does not say how its run was going")
        momentum = momentum_of(checkpoint.spec) if isinstance(checkpoint.spec, ModelSpec) else None
        best = _best_tensors(RunDirectory.of(config), checkpoint)
        best_step = None if best is None else training.get("best_step")
        about = [*numbers, training.get("stratified") is True, best_step, momentum]
    told = comm.broadcast_bytes(json.dumps(about).encode() if comm.rank == 0 else None)
    given = json.loads(told)
    if given is None:
        return None
    step, epoch, global_batch_size, num_workers, num_shards, events_bytes, stratified, best_step, momentum = given
    numbers = step, epoch, global_batch_size, num_workers, num_shards, events_bytes
    return Continuation(*numbers, checkpoint, stratified, best_step, best, momentum)


def _best_tensors(directory: RunDirectory, checkpoint: Checkpoint) -> Mapping[str, NDArray[Any]] | None:
    """The weights of the best epoch before a checkpoint: its own, those of another one, or of the best model's file."""
    step = checkpoint.training.get("best_step")
    if not isinstance(step, int):
        return None
    if step == checkpoint.step:
        return checkpoint.tensors
    with suppress(CheckpointError):
        return CheckpointStore(directory.checkpoints, say=lambda _: None).load(step).tensors
    with suppress(ModelFileError):
        file = load_model_file(directory.best_model)
        if file.metadata.get("step") == str(step) and file.spec == checkpoint.spec:
            return file.tensors
    return None


def _find(config: RunConfig, point: ResumePoint, say: Say) -> Checkpoint | None:
    directory = RunDirectory.of(config)
    has_options = directory.config.is_file()
    if has_options:
        check_same_run(directory.path, gather(directory.config).build(), config)
    checkpoint = _choose(CheckpointStore(directory.checkpoints, say=say), point)
    if checkpoint is not None and checkpoint.config and not has_options:
        check_same_run(directory.path, _saved_config(checkpoint.config, config), config)
    return checkpoint


def _choose(store: CheckpointStore, point: ResumePoint) -> Checkpoint | None:
    if point.step is not None:
        return store.load(point.step)
    if point.epoch is not None:
        return store.load(_step_of_epoch(store, point.epoch))
    return store.newest()


def _step_of_epoch(store: CheckpointStore, epoch: int) -> int:
    found: dict[int, int] = {}
    for entry in store.entries(verify=True):
        if entry.checkpoint is not None:
            progress = entry.checkpoint.training.get("progress", {})
            if progress.get("step_in_epoch") == 0:
                found[progress.get("num_epochs", -1)] = entry.step
    if epoch not in found:
        known = ", ".join(map(str, sorted(found))) or "none"
        raise CheckpointError(f"no good checkpoint of the end of epoch {epoch} in {store.path}; there are: {known}")
    return found[epoch]


def with_same_steps(config: RunConfig, continuation: Continuation, num_workers: int) -> tuple[RunConfig, list[str]]:
    """The configuration for another number of workers: the global batch stays, so that steps mean the same."""
    batch = continuation.global_batch_size
    given = config.training.local_batch_size is not None or config.training.global_batch_size is not None
    if config.workers.shards is not None or (given and config.samples_per_step(num_workers) == batch):
        return config, []
    remark = (
        f"resume: the run had {continuation.num_workers} workers and goes on with {num_workers}; its global batch of "
        f"{batch} samples stays"
    )
    remarks = [] if continuation.num_workers == num_workers else [remark]
    return config.replace(global_batch_size=batch, local_batch_size=None), remarks


def _saved_config(saved: Mapping[str, Any], config: RunConfig) -> RunConfig:
    """The configuration in a checkpoint; version 0.1 wrote the bare name of a data set that was given as an object."""
    name = saved.get("dataset")
    if isinstance(name, str) and config.dataset.name == GivenDataset.name:
        saved = {**saved, "dataset": GivenDataset(title_given=name)}
    return RunConfig(**saved)


def check_same_run(directory: Path, before: RunConfig, config: RunConfig) -> None:
    """Refuse to resume with options that would make another run of it."""
    differences = [
        f"{path}: {'not set' if old is None else old} before, {'not set' if new is None else new} now"
        for path, (old, new) in config.differences(before).items()
    ]
    if differences:
        raise UsageError(
            f"the run in '{directory}' was started with other options: {'; '.join(differences)}. Leave them out, "
            "or choose another --run-dir"
        )


def set_aside(directory: RunDirectory, continuation: Continuation, say: Say) -> None:
    """Let a directory be as it was at the checkpoint that the run resumes from, but for its log; rank 0 calls."""
    supersede(directory, continuation, say)
    remove_pictures_after(directory.pictures, continuation.epoch)


def supersede(directory: RunDirectory, continuation: Continuation, say: Say) -> Path | None:
    """Keep what a run did after the checkpoint that it resumes from, if it saved anything there; rank 0 calls.

    Gives the folder ``superseded/N``: a run directory with the later checkpoints, the whole log, the models and the
    later pictures, from which that run can be resumed. The models stay in place too, until newer ones replace them.
    """
    store = CheckpointStore(directory.checkpoints, say=say)
    if not any(step > continuation.step for step in store.steps()):
        return None
    kept = RunDirectory(_next_folder(directory.path))
    with _explained(directory, kept):
        make_directory(kept.path / CHECKPOINTS)
        models = (MODEL, BEST_MODEL, LAST_MODEL)
        for name in (CONFIG, EVENTS, *models):
            _duplicate(directory.path / name, kept.path / name, link=name in models)
        synchronise(kept.path)
    steps = store.move_after(continuation.step, kept.path / CHECKPOINTS)
    _move_pictures(directory.pictures, kept.pictures, continuation.epoch, say)
    say(
        f"resuming from step {continuation.step} supersedes the checkpoints of {_listed(steps)}: they were moved, with "
        f"the log and models of that time, to {kept.path}. `ringlet resume {kept.path}` gets back to them; delete that "
        "folder when you no longer need it"
    )
    return kept.path


def _next_folder(run: Path) -> Path:
    last = max((int(folder.name) for folder in superseded_runs(run)), default=0)
    return run / SUPERSEDED / str(last + 1)


def _duplicate(source: Path, target: Path, *, link: bool) -> None:
    """A second name for a file that is only ever replaced (``link``, where links work), or a copy; durable."""
    if not source.is_file():
        return
    if link:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    synchronise(target)


def _move_pictures(folder: Path, target: Path, epoch: int, say: Say) -> None:
    later = pictures_after(folder, epoch)
    try:
        for path in later:
            target.mkdir(exist_ok=True)
            path.rename(target / path.name)
    except OSError as error:
        say(f"pictures of later epochs could not be moved to {target}: {error.strerror}")


def _listed(steps: list[int]) -> str:
    shown = ", ".join(map(str, steps[:8])) + (", …" if len(steps) > 8 else "")
    return f"step{'s' * (len(steps) > 1)} {shown}"


@contextmanager
def _explained(directory: RunDirectory, kept: RunDirectory) -> Iterator[None]:
    """An error before anything was moved leaves all as it was."""
    try:
        yield
    except (OSError, CheckpointError) as error:
        shutil.rmtree(kept.path, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(
            f"cannot set aside the later checkpoints of {directory.path}: {reason}. Nothing was changed; make room, or "
            "resume from the newest checkpoint"
        ) from None
