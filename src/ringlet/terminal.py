"""Where messages for people go: the console of this process, and whether a bar may be redrawn on it.

The error output of a rank is a pipe to its launcher. Ringlet's own tells rank 0 about the terminal behind it
(:data:`TERMINAL_VARIABLE`); of mpirun and mpiexec it is found out, on Linux, from the launcher's own error output.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
import termios
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 160
"""Columns of tables in files and pipes."""
TERMINAL_VARIABLE = "RINGLET_TERMINAL"
"""Tells rank 0 about the launcher's terminal: ``120x40+color``."""
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_LAUNCHERS = re.compile(r"mpirun|mpiexec|orterun|prterun|prte|hydra")
_LABELS = re.compile(
    rb"-{1,2}(l|tag-output|prepend-rank|output|output-filename|outfile-pattern|errfile-pattern|xterm)(=|$)"
)
"""Options of launchers with which what rank 0 writes does not reach the terminal as it is."""
_MOST_ANCESTORS = 8


class Terminal(NamedTuple):
    """A terminal to which somebody else passes the error output of this process."""

    columns: int
    lines: int
    has_colours: bool


def errors_console() -> Console:
    """The console for everything that is not a result."""
    return _console(stderr=True)


def results_console() -> Console:
    """The console for results."""
    return _console(stderr=False)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    settings: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": False}
    behind = launchers_terminal() if stderr and not stream.isatty() else None
    if behind is not None:
        settings |= {"width": behind.columns, "height": behind.lines, "force_terminal": True}
        settings |= {"color_system": "auto" if behind.has_colours else None}
    elif not stream.isatty() and "COLUMNS" not in os.environ:
        settings |= {"width": PLAIN_WIDTH}
    if os.environ.get("NO_COLOR"):
        settings |= {"color_system": None, "no_color": True}  # not even bold
    return Console(stderr=stderr, **settings)


def is_live(console: Console) -> bool:
    """Whether bars may be redrawn: on a terminal, not in a file or pipe, even if that shall have colours."""
    stream = sys.stderr if console.stderr else sys.stdout
    passed_on = console.stderr and launchers_terminal() is not None
    return console.is_terminal and not console.is_dumb_terminal and (stream.isatty() or passed_on)


def launchers_terminal() -> Terminal | None:
    """The terminal that the launcher of this process writes our error output to as it is, if there is one."""
    told = os.environ.get(TERMINAL_VARIABLE)
    if told is None:
        return _terminal_of_mpi() if _is_first_rank() else None
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(\+color)?", told)
    return None if match is None else Terminal(int(match[1]), int(match[2]), match[3] is not None)


def terminal_text(descriptor: int) -> str | None:
    """The terminal at ``descriptor`` as :data:`TERMINAL_VARIABLE` has it; None if there is none."""
    try:
        if not os.isatty(descriptor):
            return None
        size = os.get_terminal_size(descriptor)
    except (OSError, ValueError):
        return None
    return f"{size.columns}x{size.lines}{'+color' if _shows_colours() else ''}"


def _shows_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _is_first_rank() -> bool:
    """Whether an MPI launcher has started this process, as rank 0."""
    ranks = [os.environ[name] for name in _RANK_VARIABLES if name in os.environ]
    return bool(ranks) and all(rank == "0" for rank in ranks)


@cache
def _terminal_of_mpi() -> Terminal | None:
    """The terminal of the mpirun or mpiexec above this process, unless it labels or redirects what ranks write."""
    launcher = None
    process = Path("/proc") / str(os.getppid())
    try:
        for _ in range(_MOST_ANCESTORS):
            if _LAUNCHERS.search((process / "comm").read_text(encoding="utf-8", errors="replace")):
                launcher = process
            elif launcher is not None:
                break
            status = (process / "stat").read_text(encoding="utf-8", errors="replace")
            process = process.with_name(status.rpartition(")")[2].split()[1])
        if launcher is None or _has_labels(launcher):
            return None
        return _size_of(str((launcher / "fd" / "2").readlink()))
    except (OSError, IndexError):  # no such file system, a process of somebody else, or one that has ended
        return None


def _has_labels(launcher: Path) -> bool:
    return any(_LABELS.match(word) for word in (launcher / "cmdline").read_bytes().split(b"\0"))


def _size_of(device: str) -> Terminal | None:
    """The size of a terminal by its name; None if it is none."""
    if not re.match(r"/dev/(pts/|tty)", device):
        return None
    descriptor = os.open(device, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        lines, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8))
    finally:
        os.close(descriptor)
    return Terminal(columns, lines, _shows_colours()) if columns and lines else None
