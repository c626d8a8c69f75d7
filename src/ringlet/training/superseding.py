"""Resuming from an earlier checkpoint: what came after it is kept in a run directory of its own, never deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.atomic import make_directory
from ringlet.errors import CheckpointError
from ringlet.io.disk import synchronise
from ringlet.training.pictures import pictures_after
from ringlet.training.resuming import Continuation
from ringlet.training.run_directory import (
    BEST_MODEL,
    CONFIG,
    EVENTS,
    MODEL,
    SUPERSEDED,
    RunDirectory,
    superseded_runs,
)


def supersede(directory: RunDirectory, continuation: Continuation, say: Callable[[str], None]) -> Path | None:
    """Keep what a run did after the checkpoint that it resumes from, if it saved anything there; rank 0 calls.

    Gives the folder ``superseded/N``: a run directory with the later checkpoints, the whole log, the models and the
    later pictures, from which that run can be resumed. The models stay in place too, until newer ones replace them.
    """
    store = CheckpointStore(directory.checkpoints, say=say)
    if not any(step > continuation.step for step in store.steps()):
        return None
    kept = RunDirectory(_next_folder(directory.path))
    with _explained(directory, kept):
        make_directory(kept.checkpoints)
        for name in (CONFIG, EVENTS, MODEL, BEST_MODEL):
            _duplicate(directory.path / name, kept.path / name, link=name in (MODEL, BEST_MODEL))
        synchronise(kept.path)
    steps = store.move_after(continuation.step, kept.checkpoints)
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


def _move_pictures(folder: Path, target: Path, epoch: int, say: Callable[[str], None]) -> None:
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
