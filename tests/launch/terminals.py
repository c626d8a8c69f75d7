"""A terminal of its own for a command, which can be closed; and shared memory of its own, to see what is left there."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep

import pytest
from launched import TIMEOUT, Begin, Launched

_TAKE = """
import fcntl, os, sys, termios
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
for number in range(3):
    os.dup2(int(sys.argv[1]), number)
os.execvp(sys.argv[2], sys.argv[2:])
"""
_OWN_MEMORY = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=512m tmpfs /dev/shm && exec "$0" "$@"')


class Terminal:
    """A command at a terminal that somebody reads, until it is closed: then the system sends SIGHUP."""

    def __init__(self, begin: Begin, command: Sequence[str], **options: object) -> None:
        self._master, slave = pty.openpty()
        self.job: Launched = begin(
            [sys.executable, "-c", _TAKE, str(slave), *map(str, command)], pass_fds=(slave,), **options
        )
        os.close(slave)
        self.text = b""
        self._is_closing = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while not self._is_closing.is_set():
            ready, _, _ = select.select([self._master], [], [], 0.02)
            try:
                self.text += os.read(self._master, 1 << 16) if ready else b""
            except OSError:  # no one has the other end open any more
                return

    def wait_for(self, text: str) -> None:
        """Until it was shown."""
        end = monotonic() + TIMEOUT
        while text.encode() not in self.text:
            assert monotonic() < end, self.text.decode(errors="replace")
            assert self.job.process.poll() is None or not self._reader.is_alive(), self.text.decode(errors="replace")
            sleep(0.01)

    def close(self) -> None:
        """Close the window."""
        if not self._is_closing.is_set():
            self._is_closing.set()
            self._reader.join()
            os.close(self._master)


class OwnMemory:
    """``/dev/shm`` of a command and of all it starts, which no one else uses."""

    def __init__(self) -> None:
        probe = subprocess.run([*_OWN_MEMORY, "true"], capture_output=True, text=True, timeout=TIMEOUT)
        if probe.returncode != 0:
            pytest.skip(f"cannot mount a file system: {probe.stderr.strip()}")
        self._folder = -1

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command that sees this memory alone."""
        return [*_OWN_MEMORY, *map(str, command)]

    def hold(self, process: int) -> None:
        """Keep the memory that a process sees, to look into it later."""
        self._folder = os.open(f"/proc/{process}/root/dev/shm", os.O_RDONLY | os.O_DIRECTORY)

    def left(self) -> list[str]:
        """What is in it."""
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries]

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def opening(begin: Begin) -> Iterator[type]:
    """Gives a function that starts commands at terminals; those still open are closed at the end."""
    opened: list[Terminal] = []

    def start(command: Sequence[str], **options: object) -> Terminal:
        opened.append(Terminal(begin, command, **options))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


terminal = pytest.fixture(opening)


@pytest.fixture
def own_memory() -> Iterator[OwnMemory]:
    memory = OwnMemory()
    yield memory
    memory.close()


def partial_files(folder: Path) -> list[str]:
    """What was not finished."""
    return [str(path) for path in folder.rglob("*partial*")]
