"""The run directory: ``config.toml`` (resolved), ``events.ndjson`` (every metric), ``model.safetensors``, pictures."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ringlet.checkpoint.atomic import make_directory
from ringlet.config import RunConfig, gather
from ringlet.config.sections import AUTO
from ringlet.errors import CheckpointError, UsageError
from ringlet.io.disk import synchronise
from ringlet.io.storage import Place, place_of
from ringlet.training.run_lock import RunLock

CONFIG, EVENTS, MODEL, BEST_MODEL = "config.toml", "events.ndjson", "model.safetensors", "best.safetensors"
LAST_MODEL = "last.safetensors"
CHECKPOINTS, PICTURES, SUPERSEDED, EVALUATION = "checkpoints", "pictures", "superseded", "evaluation"


@dataclass(frozen=True)
class RunDirectory:
    """An existing, complete run directory."""

    path: Path
    location: str | None = None
    """Where its checkpoints are, if not in it: a folder, or an address of an object store."""

    @classmethod
    def of(cls, config: RunConfig) -> RunDirectory:
        """That of a configuration."""
        return cls(run_path(config), config.checkpoint.location)

    @classmethod
    def existing(cls, path: Path) -> RunDirectory:
        """One that a run has written; its own configuration says where its checkpoints are."""
        config = path / CONFIG
        return cls.of(gather(config).build().replace(run_dir=str(path))) if config.is_file() else cls(path)

    @property
    def events(self) -> Path:
        """One JSON object per line; see ``events``."""
        return self.path / EVENTS

    @property
    def config(self) -> Path:
        """The options of the run."""
        return self.path / CONFIG

    @property
    def checkpoints(self) -> Place:
        """One directory per checkpoint; see :mod:`ringlet.checkpoint`."""
        return self.path / CHECKPOINTS if self.location is None else place_of(self.location)

    @property
    def model(self) -> Path:
        """The model after the last finished epoch, or at the interruption; in the end the best one, if one is kept."""
        return self.path / MODEL

    @property
    def best_model(self) -> Path:
        """The best model by the metric that model_checkpoint or early_stopping watches."""
        return self.path / BEST_MODEL

    @property
    def last_model(self) -> Path:
        """The model after the last epoch, where the best one has taken its place."""
        return self.path / LAST_MODEL

    @property
    def pictures(self) -> Path:
        """One picture of validation samples per epoch; see :mod:`ringlet.training.pictures`."""
        return self.path / PICTURES

    @property
    def evaluation(self) -> Path:
        """The report of the last evaluation on test data; see :mod:`ringlet.evaluation.files`."""
        return self.path / EVALUATION


def superseded_runs(run: Path) -> list[Path]:
    """What was set aside each time that a run resumed from an earlier checkpoint, in order; see ``superseding``."""
    found = (path for path in (run / SUPERSEDED).glob("*") if re.fullmatch("[0-9]{1,9}", path.name))
    return sorted(found, key=lambda path: int(path.name))


def create_run_directory(config: RunConfig) -> tuple[RunDirectory, RunLock]:
    """Make a new run's directory, locked, in one rename: it is there completely or not at all, after a power loss too.

    Without its options good checkpoints could not be resumed.
    """
    target = run_path(config)
    _require_free(target)
    try:
        make_directory(target.parent)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except (OSError, CheckpointError) as error:
        raise _cannot_make(target, error) from None
    lock: RunLock | None = None
    try:
        kept = config.replace(break_lock=False, stop_after=None)  # what this start asks for, not the run
        (draft / CONFIG).write_text(kept.to_toml(), encoding="utf-8")
        (draft / EVENTS).touch()
        draft.chmod(0o755)
        for path in (draft / CONFIG, draft / EVENTS, draft):
            synchronise(path)
        lock = RunLock.acquire(draft, later_name=target)
        draft.rename(target)
        synchronise(target.parent)
    except BaseException as error:
        if lock is not None:
            lock.release()
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):
            raise _cannot_make(target, error) from None
        raise
    return RunDirectory(target, config.checkpoint.location), lock


def _cannot_make(target: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    return UsageError(f"run directory '{target}' cannot be made: {reason}. Choose another with --run-dir")


def check_run_directory(config: RunConfig) -> None:
    """Refuse an occupied or impossible run directory early, before time is spent on data."""
    target = run_path(config)
    if is_continued(config):
        return
    if config.checkpoint.resume not in (None, "auto"):
        raise UsageError(f"run directory '{target}' holds no run to resume from: give that of an earlier run")
    _require_free(target)
    nearest = next((folder for folder in target.parents if folder.exists()), Path())
    if not nearest.is_dir():
        raise UsageError(
            f"run directory '{target}' cannot be made: '{nearest}' is not a folder. Choose another with --run-dir"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"run directory '{target}' cannot be made: '{nearest}' is not writable. Choose another with --run-dir"
        )


def check_output_file(name: str, path: str | None) -> None:
    """Refuse a file that could not be written at the end of the run."""
    if path is None:
        return
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"{name} '{path}': folder '{folder}' does not exist. Make it first")
    if Path(path).is_dir():
        raise UsageError(f"{name} '{path}' is a folder: give the name of a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{name} '{path}': folder '{folder}' is not writable. Choose another")


def run_path(config: RunConfig) -> Path:
    """Where the run directory is, or is to be."""
    if config.output.run_dir:
        return Path(config.output.run_dir)
    if config.checkpoint.resume is not None:
        raise UsageError("resume needs the run directory: give --run-dir, or use `ringlet resume RUN`")
    return _default_path(config)


def is_continued(config: RunConfig) -> bool:
    """Whether the run resumes in the directory of an earlier one."""
    return config.checkpoint.resume is not None and (run_path(config) / CONFIG).is_file()


def _default_path(config: RunConfig) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    network = () if config.model.network == AUTO else (config.model.network,)
    name = "-".join(_file_name(part) for part in (*network, config.dataset.label)) + f"-{stamp}"
    candidates = (Path("runs") / (name if attempt == 1 else f"{name}-{attempt}") for attempt in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _file_name(text: str) -> str:
    """A name that is one harmless path component."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", text).strip("._")[-60:] or "run"


def _require_free(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            return
        again = f"; `ringlet resume {path}` resumes the run in it" if (path / CONFIG).is_file() else ""
        raise UsageError(
            f"run directory '{path}' exists and is not empty. Choose another with --run-dir, or delete it{again}"
        )
    if path.exists() or path.is_symlink():
        raise UsageError(f"run directory '{path}' exists and is not a directory. Choose another with --run-dir")
