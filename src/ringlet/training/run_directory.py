"""The run directory: ``config.toml`` (resolved), ``events.ndjson`` (every figure), ``model.safetensors``."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ringlet.config import RunConfig
from ringlet.errors import UsageError

CONFIG, EVENTS, MODEL, BEST_MODEL = "config.toml", "events.ndjson", "model.safetensors", "best.safetensors"


@dataclass(frozen=True)
class RunDirectory:
    """An existing, complete run directory."""

    path: Path

    @property
    def events(self) -> Path:
        """One JSON object per line; see ``events``."""
        return self.path / EVENTS

    @property
    def model(self) -> Path:
        """The model after the last finished epoch, or at the interruption."""
        return self.path / MODEL

    @property
    def best_model(self) -> Path:
        """The best model by the figure that model_checkpoint watches."""
        return self.path / BEST_MODEL


def create_run_directory(config: RunConfig) -> RunDirectory:
    """Make the directory in one rename: it is there completely or not at all."""
    target = Path(config.run_dir) if config.run_dir else _default_path(config)
    _require_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise UsageError(
            f"run directory '{target}' cannot be made: {error.strerror}. Choose another with --run-dir"
        ) from None
    try:
        (draft / CONFIG).write_text(config.to_toml(), encoding="utf-8")
        (draft / EVENTS).touch()
        draft.chmod(0o755)
        draft.rename(target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise UsageError(
            f"run directory '{target}' cannot be made: {error.strerror}. Choose another with --run-dir"
        ) from None
    return RunDirectory(target)


def check_run_directory(config: RunConfig) -> None:
    """Refuse an occupied or impossible run directory early, before time is spent on data."""
    target = Path(config.run_dir) if config.run_dir else _default_path(config)
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


def _default_path(config: RunConfig) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = "-".join(_file_name(part) for part in (config.model, config.dataset)) + f"-{stamp}"
    candidates = (Path("runs") / (name if attempt == 1 else f"{name}-{attempt}") for attempt in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _file_name(text: str) -> str:
    """A name that is one harmless path component."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", text).strip("._")[-60:] or "run"


def _require_free(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            return
        raise UsageError(f"run directory '{path}' exists and is not empty. Choose another with --run-dir, or delete it")
    if path.exists() or path.is_symlink():
        raise UsageError(f"run directory '{path}' exists and is not a directory. Choose another with --run-dir")
