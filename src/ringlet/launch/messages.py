"""What a rank reports to its launcher: lines of JSON beside what it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ringlet.forks import Owner
from ringlet.launch.processes import REPORT_VARIABLE

MAX_TEXT = 200_000
"""Longest text in a message."""
_MAX_LINE = 4 << 20


def started(pid: int, host: str) -> bytes:
    """The rank runs."""
    return _line(event="started", pid=pid, host=host)


def failed(text: str, exit_code: int, *, secondary: bool = False) -> bytes:
    """The rank cannot go on; ``secondary``: perhaps only because another rank failed or left."""
    return _line(event="failed", text=text[:MAX_TEXT], exit_code=exit_code, secondary=secondary)


def leaving(exit_code: int) -> bytes:
    """The rank is about to end on purpose with a code other than 0."""
    return _line(event="leaving", exit_code=exit_code)


def ended(return_code: int, *, out_of_memory: bool = False) -> bytes:
    """The rank's process ended: with its exit code or, negative, by a signal."""
    return _line(event="ended", return_code=return_code, out_of_memory=out_of_memory)


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


class MessageReader:
    """Cuts a stream into messages; what is none is skipped."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete by now."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._pending = self._pending[-_MAX_LINE:]
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                yield message


_to_launcher: int | None = None
_owner = Owner()
"""A copy of the rank must not speak for it."""


def connect_launcher() -> None:
    """Take over the file descriptor for messages that the launcher left; processes started later must not have it."""
    global _to_launcher, _owner
    _owner = Owner()
    text = os.environ.pop(REPORT_VARIABLE, "")
    if text.isascii() and text.isdecimal():
        _to_launcher = int(text)
        os.set_inheritable(_to_launcher, False)


def is_rank() -> bool:
    """Whether this process is a rank that a launcher of ours started and hears."""
    return _to_launcher is not None and _owner.is_here


def report(message: bytes) -> bool:
    """Tell the launcher; False if there is none or it does not listen any more."""
    return _to_launcher is not None and _owner.is_here and send(_to_launcher, message)


def send(descriptor: int, message: bytes) -> bool:
    """Write a message; False if nobody listens any more."""
    try:
        while message:
            message = message[os.write(descriptor, message) :]
    except OSError:
        return False
    return True
