"""What lies in a run directory beside its log: checkpoints and pictures of validation."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from ringlet.errors import UsageError
from ringlet.training.run_directory import CHECKPOINTS, EVENTS, PICTURES

MAX_LISTED = 500
MAX_PICTURE_BYTES = 16 << 20
_CHECKPOINT = re.compile(r"step-(\d{1,15})")
_PICTURE = re.compile(r"epoch-(\d{1,9})\.png")
_PNG = b"\x89PNG\r\n\x1a\n"


def find_run(path: Path) -> Path:
    """The run directory that a user means: itself or its log."""
    folder = path.parent if path.name == EVENTS and path.is_file() else path
    if (folder / EVENTS).is_file():
        return folder
    if not folder.is_dir():
        raise UsageError(f"'{path}' is no run directory: it does not exist. Give the folder that a run has written")
    runs = newest_runs(folder)
    hint = f" Did you mean '{runs[0]}'?" if runs else " Give the folder that a run has written"
    raise UsageError(f"'{path}' is no run directory: it has no {EVENTS}.{hint}")


def newest_runs(folder: Path) -> list[Path]:
    """The run directories right below ``folder``, the one that was written to last first."""
    try:
        logs = [(log.stat().st_mtime, log.parent) for log in folder.glob(f"*/{EVENTS}")]
    except OSError:
        return []
    return [path for _, path in sorted(logs, reverse=True)]


def checkpoints(run: Path) -> list[dict[str, Any]]:
    """Step, time and size of the newest checkpoints, in order."""
    found = []
    for step, path in _numbered(run / CHECKPOINTS, _CHECKPOINT):
        try:
            num_bytes = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
            found.append({"step": step, "time": path.stat().st_mtime, "bytes": num_bytes})
        except OSError:
            continue  # it was removed meanwhile
    return found


def pictures(run: Path) -> list[int]:
    """The epochs of which there are pictures."""
    return [epoch for epoch, _ in _numbered(run / PICTURES, _PICTURE)]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    try:
        matches = [(pattern.fullmatch(entry.name), entry.path) for entry in os.scandir(folder)]
    except OSError:
        return []
    return sorted((int(match[1]), Path(path)) for match, path in matches if match)[-MAX_LISTED:]


def read_picture(run: Path, epoch: int) -> bytes | None:
    """A picture of validation; None if there is none, or something else under its name."""
    found = dict(_numbered(run / PICTURES, _PICTURE)).get(epoch)
    if found is None:
        return None
    try:
        descriptor = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MAX_PICTURE_BYTES + 1)
    except OSError:
        return None
    return data if data.startswith(_PNG) and len(data) <= MAX_PICTURE_BYTES else None
