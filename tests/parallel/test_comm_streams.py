"""What a process printed is read before it ends the job, and a reader that does not read keeps nobody alive."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet.output_streams as streams

WORDS = b"last words" * 300
PROGRAM = f"""
import os, sys
from ringlet.output_streams import drain_streams
sys.stderr.write({WORDS.decode()!r})
drain_streams()
os.write(int(sys.argv[1]), b"drained")
"""


def test_draining_waits_for_the_reader_of_a_pipe() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(writing)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[writing]) as child:
        os.close(writing)
        assert child.stderr is not None
        select.select([child.stderr], [], [])  # something lies in the pipe
        assert select.select([reading], [], [], 0.1)[0] == []
        assert child.stderr.read(len(WORDS)) == WORDS
        assert os.read(reading, 100) == b"drained"
    os.close(reading)


def test_a_reader_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    saved = os.dup(2)
    monkeypatch.setattr(streams, "READ_SECONDS", 0.01)
    try:
        os.dup2(writing, 2)
        os.write(2, WORDS)
        streams.drain_streams()
    finally:
        os.dup2(saved, 2)
        for descriptor in (saved, writing):
            os.close(descriptor)
    assert os.read(reading, len(WORDS) + 1) == WORDS
    os.close(reading)


def test_closed_streams_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)
    streams.drain_streams()
