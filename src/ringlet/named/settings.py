"""What environment variables say: how patient engines are (equal on all ranks), and where to write a timeline."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ringlet.errors import UsageError

STALL_WARNING = "RINGLET_STALL_WARNING_SECONDS"
STALL_ERROR = "RINGLET_STALL_ERROR_SECONDS"
TRACE = "RINGLET_TRACE"
"""A file that takes the timeline from the beginning on."""
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """Seconds; 0 means never."""

    stall_warning: float = 60.0
    """Until a request that other ranks have not submitted is reported."""
    stall_error: float = 600.0
    """Until it fails."""

    @property
    def heartbeat(self) -> float:
        """How often a rank without requests takes part in a round, so that the others learn what is missing."""
        limits = [limit / 4 for limit in (self.stall_warning, self.stall_error) if limit]
        return min([HEARTBEAT_SECONDS, *limits])


def settings_from_environment() -> Settings:
    """Defaults where a variable is not set."""
    return Settings(_seconds(STALL_WARNING, Settings.stall_warning), _seconds(STALL_ERROR, Settings.stall_error))


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{variable}={text!r} makes no sense: expected a number of seconds, or 0 for never")
    return seconds
