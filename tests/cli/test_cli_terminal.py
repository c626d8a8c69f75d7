"""What ``ringlet train`` shows on a terminal (a pseudo-terminal here), and that it leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, field

import pytest

from ringlet.errors import EXIT_INTERRUPTED

HARD_LIMIT_SECONDS = 120.0
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-9]|4[0-9]|9[0-7])(?:;\d+)*m")
TRAIN = ("train", "--kernels", "reference", "--run-dir", "out", "--num-epochs")
PROGRAM = (sys.executable, "-m", "ringlet")
FIGURES = r"[\d,]+ samples/s, acc: [\d.]+%, loss: [\d.]+"


@dataclass
class Terminal:
    """A process on a pseudo-terminal; ``text`` is all it has written, escapes included."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = PROGRAM
    columns: int = 110
    text: str = ""

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + HARD_LIMIT_SECONDS
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, self.columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        settings = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*self.program, *self.arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, **settings, **self.environment},
        )
        os.close(slave)

    def read_until(self, pattern: str) -> None:
        """Read until ``pattern`` has appeared."""
        while not re.search(pattern, self.text):
            assert self._read_more(), f"{pattern} never appeared in {self.text}"

    def finish(self) -> int:
        """Read to the end; gives the exit code."""
        while self._read_more():
            pass
        return self.process.wait(timeout=max(self.deadline - time.monotonic(), 1.0))

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def _read_more(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(self.deadline - time.monotonic(), 0.0))
        assert ready, f"nothing more within {HARD_LIMIT_SECONDS} s after {self.text}"
        try:
            self.text += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        except OSError:  # how Linux says that the other end is closed
            return False
        return True


@pytest.fixture
def terminal():
    """Start ``ringlet`` on a terminal; it is ended with the test."""
    started: list[Terminal] = []

    def start(*arguments: str, columns: int = 110, program: tuple[str, ...] = PROGRAM, **environment: str) -> Terminal:
        started.append(Terminal(arguments, environment, program, columns))
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_the_bar_shows_epoch_speed_loss_metrics_and_time_left_and_each_epoch_leaves_its_line(terminal):
    run = terminal(*TRAIN, "4", columns=140)
    assert run.finish() == 0
    shown = ESCAPE.sub("", run.text)
    assert re.search(rf"Epoch \d/4 [━╸╺]+ \d+/1293 {FIGURES}, \d+:\d\d left", shown)
    for epoch in range(1, 5):
        assert re.search(rf"Epoch {epoch}/4: 1293 samples in [\d.]+ s, {FIGURES}, val_acc: .*%, val_loss: ", shown)
    assert re.search(r"Test: test_acc: [\d.]+%, test_loss: [\d.]+\s*$", shown)


def test_at_80_columns_no_line_is_longer_and_no_number_is_broken(terminal):
    run = terminal(*TRAIN, "2", columns=80)
    assert run.finish() == 0
    drawn = [part for part in re.split(r"[\r\n]+", ESCAPE.sub("", run.text)) if part]
    assert max(map(len, drawn)) <= 80
    assert any(re.search(r"Epoch \d/2 [━╸╺]{8,} .*loss: [\d.]+.*, \d+:\d\d left", part) for part in drawn)
    for epoch in (1, 2):
        first = next(place for place, part in enumerate(drawn) if part.startswith(f"Epoch {epoch}/2: 1293 samples in"))
        assert drawn[first].endswith(",")
        assert re.fullmatch(r"  (val_)?\w+: .*", drawn[first + 1])


def test_the_bar_is_drawn_under_mpiexec_as_well(terminal):
    """What ranks write is a pipe to mpiexec, whose own error output is the terminal."""
    pytest.importorskip("mpi4py")
    from ringlet.launch.mpiexec import find_mpi

    mpiexec = find_mpi().path
    run = terminal(*TRAIN, "3", program=(mpiexec, "-n", "2", *PROGRAM), columns=120)
    assert run.finish() == 0, run.text
    shown = ESCAPE.sub("", run.text)
    assert re.search(r"Epoch \d/3 [━╸╺]+ \d+/1293 .*, \d+:\d\d left", shown)
    assert shown.count("Epoch 3/3: 1293 samples in") == 1
    assert run.text.rindex(SHOW_CURSOR) > run.text.rindex(HIDE_CURSOR)


def test_the_cursor_comes_back_and_the_bar_goes(terminal):
    run = terminal(*TRAIN, "1")
    assert run.finish() == 0
    assert HIDE_CURSOR in run.text
    after = run.text[run.text.rindex(SHOW_CURSOR) :]
    assert HIDE_CURSOR not in after
    assert "\x1b[2K" in after  # the line of the bar is erased
    assert "━" not in after


def test_the_cursor_comes_back_after_an_interruption(terminal):
    run = terminal(*TRAIN, "100000")
    run.read_until(r"Epoch +1/100000: ")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == EXIT_INTERRUPTED
    assert run.text.rindex(SHOW_CURSOR) > run.text.rindex(HIDE_CURSOR)
    assert "interrupted: " in ESCAPE.sub("", run.text)


def test_the_cursor_comes_back_after_a_divergence(terminal):
    run = terminal(*TRAIN, "2", "--optimizer", "sgd", "--learning-rate", "1e30")
    assert run.finish() == 4
    assert run.text.rindex(SHOW_CURSOR) > run.text.rindex(HIDE_CURSOR)


def test_no_color_is_honoured(terminal):
    colourful = terminal(*TRAIN, "1")
    plain = terminal(*TRAIN, "1", "--run-dir", "plain", NO_COLOR="1")
    assert (colourful.finish(), plain.finish()) == (0, 0)
    assert COLOUR.search(colourful.text)
    assert not COLOUR.search(plain.text)


def test_a_dumb_terminal_gets_plain_lines(terminal):
    run = terminal(*TRAIN, "1", TERM="dumb")
    assert run.finish() == 0
    assert "\x1b" not in run.text
    assert "Epoch 1/1: 1293 samples in" in run.text


def test_an_error_on_a_terminal_shows_no_bar(terminal):
    run = terminal("train", "--model", "simplecn")
    assert run.finish() == 2
    assert HIDE_CURSOR not in run.text
    assert ESCAPE.sub("", run.text).startswith("error: unknown model 'simplecn'")
