"""Threads of compiled kernels wait actively for a short time only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SETTING, _ROUNDS = "GOMP_SPINCOUNT", "10000"
"""About a tenth of a millisecond: longer than the gaps between kernels, shorter than a turn of another program."""


@contextmanager
def bounded() -> Iterator[None]:
    """Within: GCC's OpenMP library, if it is loaded here for the first time, lets threads sleep after a short wait.

    By itself it would let them spin for some milliseconds, on cores that other programs may need to get ahead. Settings
    of the user win.
    """
    if _SETTING in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ[_SETTING] = _ROUNDS
    try:
        yield
    finally:
        del os.environ[_SETTING]
