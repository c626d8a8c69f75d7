"""Jobs on a terminal: rank 0 knows its size and its bars arrive byte by byte."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

SCRIPT = r"""
    import os, sys
    from ringlet.comm.environments import detect
    rank = detect().rank
    if rank == 0:
        os.write(2, b"\x1b[1mbar 10 %\x1b[0m\r")
        os.write(2, b"bar 100 %\n")
    print(rank, os.environ.get("RINGLET_TERMINAL"))
"""


def on_terminal(begin, words, **environment) -> tuple[int, bytes, str]:
    """Exit code, what the terminal saw of the error output, and standard output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    mode = termios.tcgetattr(slave)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    command = [sys.executable, "-c", f"import os, sys; os.dup2({slave}, 2); os.execv(sys.executable, sys.argv[1:])"]
    job = begin([*command, sys.executable, "-m", "ringlet", "run", *map(str, words)], environment, pass_fds=(slave,))
    os.close(slave)
    seen = b""
    try:
        while data := os.read(master, 65536):
            seen += data
    except OSError:
        pass
    os.close(master)
    done = job.finish()
    return done.returncode, seen, done.stdout


def test_rank_0_learns_of_the_terminal_and_its_bar_passes_unbroken(begin, script, launcher):
    words = ("-n", 2, "--launcher", launcher, script(SCRIPT))
    code, seen, stdout = on_terminal(begin, words, TERM="xterm-256color", NO_COLOR="")
    assert code == 0
    assert b"\x1b[1mbar 10 %\x1b[0m\rbar 100 %\n" in seen
    assert sorted(stdout.splitlines()) == ["0 111x33+color", "[rank 1] 1 None"]


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_without_colours_the_size_alone_is_told(begin, script, environment):
    code, _, stdout = on_terminal(begin, ("-n", 1, "--launcher", "local", script(SCRIPT)), **environment)
    assert (code, stdout) == (0, "0 111x33\n")


def test_with_prefixes_there_is_no_terminal(begin, script):
    words = ("-n", 1, "--launcher", "local", "--output", "prefix", script(SCRIPT))
    code, seen, stdout = on_terminal(begin, words, TERM="xterm")
    assert (code, seen, stdout) == (0, b"[rank 0] bar 100 %\n", "[rank 0] 0 None\n")


def test_without_a_terminal_none_is_told(launch, script, launcher):
    done = launch("-n", 1, "--launcher", launcher, script(SCRIPT))
    assert done.stdout == "0 None\n"
