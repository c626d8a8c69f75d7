"""Telling rank 0 about the terminal behind the launcher, since its own error output is a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

TERMINAL_VARIABLE = "RINGLET_TERMINAL"


def terminal_environment(output: str, environ: Mapping[str, str]) -> dict[str, str]:
    """``RINGLET_TERMINAL=120x40+color`` if rank 0's error output will reach a terminal as it is, else nothing."""
    try:
        if output != "plain" or not os.isatty(sys.stderr.fileno()):
            return {}
        size = os.get_terminal_size(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return {}
    plain = environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb"
    return {TERMINAL_VARIABLE: f"{size.columns}x{size.lines}{'' if plain else '+color'}"}
