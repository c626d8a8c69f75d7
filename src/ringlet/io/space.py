"""Room for what is mapped into memory: found or refused when a file is made.

A file that is only *made long* has no place for its content yet. A process that writes to its mapping where
there is none left gets no error: it is killed (SIGBUS).
"""

from __future__ import annotations

import os
import shutil
from errno import EINVAL, ENOSYS, EOPNOTSUPP
from pathlib import Path

_CHUNK = 1 << 20


def reserve(descriptor: int, num_bytes: int) -> None:
    """Make a new file ``num_bytes`` long, with room for all of them; ``OSError`` if there is not enough."""
    try:
        os.posix_fallocate(descriptor, 0, max(num_bytes, 1))
    except AttributeError:
        _write_zeros(descriptor, num_bytes)
    except OSError as error:
        if error.errno not in (EINVAL, ENOSYS, EOPNOTSUPP):
            raise
        _write_zeros(descriptor, num_bytes)
    os.ftruncate(descriptor, max(num_bytes, 1))


def free_bytes(directory: Path) -> str:
    """How much room there is, in words for a message."""
    try:
        return f"{shutil.disk_usage(directory).free:,} bytes are free"
    except OSError:
        return "how much is free is unknown"


def _write_zeros(descriptor: int, num_bytes: int) -> None:
    """Where the file system cannot reserve: what has been written has its place."""
    zeros = bytes(min(_CHUNK, max(num_bytes, 1)))
    position = 0
    while position < num_bytes:
        position += os.pwrite(descriptor, zeros[: num_bytes - position], position)
