"""Horovod's environment variables, where programs that import it are to find Ringlet, in terms of Ringlet's own."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

MARK = "RINGLET_HOROVOD"
"""Set in programs that shall find Ringlet as Horovod."""
_SAME_VALUES = {
    "HOROVOD_TIMELINE": "RINGLET_TRACE",
    "HOROVOD_TIMELINE_MARK_CYCLES": "RINGLET_TRACE_CYCLES",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "RINGLET_STALL_WARNING_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "RINGLET_STALL_ERROR_SECONDS",
}
_NO_FILE = "DYNAMIC"
"""In place of a timeline's file: it will be started by ``start_timeline``."""
_OFF = ("", "0")


def translated(environ: Mapping[str, str]) -> dict[str, str]:
    """Ringlet's settings for those of Horovod's that mean something here; what Ringlet was told itself counts more."""
    settings = {ours: environ[theirs] for theirs, ours in _SAME_VALUES.items() if environ.get(theirs)}
    if settings.get("RINGLET_TRACE") == _NO_FILE:
        del settings["RINGLET_TRACE"]
    if settings.get("RINGLET_TRACE_CYCLES") in _OFF:
        del settings["RINGLET_TRACE_CYCLES"]
    if environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") not in _OFF:
        settings |= {"RINGLET_STALL_WARNING_SECONDS": "0", "RINGLET_STALL_ERROR_SECONDS": "0"}
    return {name: value for name, value in settings.items() if name not in environ}


def adopt(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let what such a program has set before ``init`` count too."""
    if environ.get(MARK):
        environ.update(translated(environ))
