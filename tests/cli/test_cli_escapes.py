"""Colours where they are wanted, no escape codes where they are not."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from ringlet.cli.main import VERBS

TRAIN = ("train", "--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "2", "--kernels", "reference")
SGR = re.compile(r"\x1b\[[0-9;]*m")


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "TERM": "xterm", **settings}
    command = [sys.executable, "-m", "ringlet", *arguments]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=True)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_no_escapes(ringlet, verb, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in ringlet(verb, "--help").stdout


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb", "FORCE_COLOR": "1"}])
def test_a_piped_run_has_no_escapes(settings):
    done = run(*TRAIN, **settings)
    assert "\x1b" not in done.stdout + done.stderr
    assert "Epoch 1/1: " in done.stderr


def test_force_color_gives_colours_in_a_pipe_but_no_bar():
    done = run(*TRAIN, FORCE_COLOR="1")
    assert SGR.search(done.stderr)
    assert "\x1b" not in SGR.sub("", done.stderr)
    assert "Epoch 1/1: " in done.stderr
