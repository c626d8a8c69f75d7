"""A folder private to a job, removed with it; what a killed launcher has left is removed by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ringlet.io.disk import try_lock

_PREFIX = "ringlet-job-"
_LOCK = "lock"


class JobFolder:
    """An empty folder that only this user can read. As long as its lock is held, the job lives."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove it. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(parent: Path) -> None:
    """Remove folders of this user's jobs whose launcher has ended: nobody holds their lock."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink() and _is_abandoned(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        return try_lock(descriptor) is True
    finally:
        os.close(descriptor)
