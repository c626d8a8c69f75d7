"""Processes that do not outlive the one that started them, however that ended.

``python -m ringlet.launch.lifeline PARENT PROGRAM ARGUMENTS…`` becomes a program that ends with its parent: mpiexec
does not notice when the process that started it is killed; started in this way it is killed as well, and then ends its
ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
EXIT_ORPHANED = 3


def die_with_parent(parent: int) -> None:
    """From now on this process is killed when process ``parent``, which started it, ends; at once if it has ended.

    On Linux the kernel does it, and keeps doing so if this process becomes another program (``exec``). Elsewhere a
    thread watches. ``parent`` must have started this process from a thread that lives as long as it wants us to live.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="ringlet-lifeline").start()
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Never returns."""
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  the point of this module; no shell is involved


if __name__ == "__main__":
    main()
