"""How many threads kernels use: all of them, or one where that is faster, decided again and again while they run.

The threads of a kernel wait for each other every few microseconds. Where other programs keep the cores busy, one of
them is often not running while the rest wait for it, and a step may take ten times as long as on one thread. And the
kernels of a small network may be too short for more than one thread. Results do not depend on the number of threads,
so it may change from step to step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import final

from ringlet.kernels.contract import Kernels

SPELL_SECONDS, SPELL_STEPS = 0.02, 5
"""A number of threads is judged by the steps of a spell, which lasts at least so long …"""
LONG_SPELL_SECONDS = 0.5
"""… but ends here, however few steps it has."""
WORTH_IT = 0.95
"""All threads must take less than this share of the time of one to be used."""
PATIENCE = 2.0
"""A spell of all threads ends early once it has taken this many times as long as one of one thread."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 20.0
"""How long the better number is used before the other one is tried again; twice as long after each trial in vain, …"""
SPELLS_BETWEEN_TRIALS = 50
"""… and at least so many times as long as the trial."""


@final
class AdaptiveThreads:
    """A context around each step, or other work that repeats; outside of it the kernels have all their threads.

    Short steps begin with one thread, and then all are tried. While all are used, a spell that is no faster than one
    thread was leads to a trial of one thread at once. Nothing happens without kernels, or with such as have one thread.
    """

    def __init__(self, kernels: Kernels | None = None, *, clock: Callable[[], float] = perf_counter) -> None:
        num_threads = getattr(kernels, "num_threads", None)
        self._kernels = kernels
        self._all: int = num_threads() if num_threads is not None else 1
        self._clock = clock
        self._used = self._all
        self._seconds: dict[int, float] = {1: math.inf}
        """Of a step with each number of threads, as measured last."""
        self._is_trial = False
        self._pause = FIRST_PAUSE_SECONDS
        self._next_trial = 0.0
        self._began = 0.0
        self._is_warm = False
        self._begin_spell()

    def __enter__(self) -> None:
        if self._all > 1:
            self._set(self._used)
            self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        if self._all == 1:
            return
        now = self._clock()
        self._set(self._all)
        if not self._is_warm:  # the first step gets its memory
            self._is_warm = True
            self._begin(now - self._began, now)
            return
        self._num_steps += 1
        self._spell_seconds += now - self._began
        if self._is_over():
            self._judge(self._spell_seconds / self._num_steps, now)
            self._begin_spell()

    def _begin(self, seconds: float, now: float) -> None:
        """After the first step: short ones are measured with one thread; long ones begin with all."""
        if seconds < LONG_SPELL_SECONDS:
            self._used = 1
        else:
            self._next_trial = now + SPELLS_BETWEEN_TRIALS * seconds

    def _set(self, number: int) -> None:
        self._kernels.set_num_threads(number)  # type: ignore[union-attr]  # only those with threads come here

    def _begin_spell(self) -> None:
        self._num_steps, self._spell_seconds = 0, 0.0

    def _is_over(self) -> bool:
        if self._spell_seconds >= LONG_SPELL_SECONDS:
            return True
        if self._used == self._all and self._spell_seconds > PATIENCE * SPELL_STEPS * self._seconds[1]:
            return True
        return self._num_steps >= SPELL_STEPS and self._spell_seconds >= SPELL_SECONDS

    def _judge(self, seconds: float, now: float) -> None:
        self._seconds[self._used] = seconds
        if not self._is_trial:
            is_in_vain = self._used == self._all and seconds > WORTH_IT * self._seconds[1]
            self._is_trial = is_in_vain or now >= self._next_trial
            if self._is_trial:
                self._swap()
            return
        self._is_trial = False
        before = self._used
        self._used = self._all if self._seconds[self._all] < WORTH_IT * self._seconds[1] else 1
        is_kept = self._used == before
        self._pause = FIRST_PAUSE_SECONDS if is_kept else min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._next_trial = now + max(self._pause, SPELLS_BETWEEN_TRIALS * self._spell_seconds)

    def _swap(self) -> None:
        self._used = 1 if self._used == self._all else self._all
