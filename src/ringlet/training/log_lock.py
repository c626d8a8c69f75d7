"""A mark on an event log that its writer lives: a lock of the file, which the system drops however a process ends.

A run that is killed hard cannot write that it ended. Whoever watches it asks for the lock instead of waiting.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from ringlet.file_locks import try_lock

_ATTEMPTS, _PAUSE_SECONDS = 5, 0.01
"""A watcher that looks has the lock for an instant; the writer tries again then."""


def hold(descriptor: int) -> None:
    """Mark an open log as being written, until it is closed or the process ends; nothing where locks do not work."""
    for _ in range(_ATTEMPTS):
        if try_lock(descriptor) is not False:
            return
        sleep(_PAUSE_SECONDS)


def is_held(path: Path) -> bool | None:
    """Whether somebody writes this log; None if that cannot be found out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        free = try_lock(descriptor, shared=True)
        return None if free is None else not free
    finally:
        os.close(descriptor)
