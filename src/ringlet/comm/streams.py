"""The last words of a process: what it has printed reaches its reader before the process ends the job."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
from contextlib import suppress
from time import monotonic, sleep

READ_SECONDS = 2.0
"""How long a reader has for what lies in a pipe: one that is stopped must not keep a failed job alive."""
_LOOK_SECONDS = 0.002


def flush_streams() -> None:
    """Write out what Python holds back of the standard output and error.

    Whoever printed last may have closed them, or their reader may be gone: the job still ends.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def drain_streams() -> None:
    """Flush, and wait until the readers of pipes have taken everything.

    For a launcher that ends the ranks and forgets what it has not read yet when one of them aborts, as mpiexec does.
    """
    flush_streams()
    deadline = monotonic() + READ_SECONDS
    for descriptor in (1, 2):
        while _num_unread(descriptor) and monotonic() < deadline:
            sleep(_LOOK_SECONDS)


def _num_unread(descriptor: int) -> int:
    """Bytes in a pipe; 0 for anything else."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0
