"""Locks of files that end with the process that has them, however it ends: a mark that somebody is at work."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Whether the lock was free, and is ours now until the file is closed; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
