"""Starting a job again: after which ends, how soon, how often, and when there is no point in it.

A job in which a worker was killed, hung or failed is tried again; mistakes, divergence and interruptions are not: they
would come out the same or were wished for. All workers are started again, since they cannot go on without one of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import final

from ringlet.errors import EXIT_DIVERGED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_RANK_DIED, EXIT_USAGE, UsageError
from ringlet.io.storage import Place, open_location
from ringlet.launch.job import SIGNAL_BASE, Outcome
from ringlet.launch.messages import is_rank

ATTEMPT_VARIABLE = "RINGLET_ATTEMPT"
"""Tells every rank how often its job was started before."""
CAUSE_VARIABLE = "RINGLET_RESTART_CAUSE"
"""Tells every rank in one line why its job was started again."""
DELAY_VARIABLE = "RINGLET_RESTART_DELAY"
"""Seconds between the end of a job and its restart; default: 1, 2, 4, … up to a minute."""
COMMITS_VARIABLE = "RINGLET_COMMITS"
"""A folder that the user names for commits of elastic states, which all machines must see; it stays after the job."""
JOB_COMMITS_VARIABLE = "RINGLET_JOB_COMMITS"
"""A folder for them that the job has on each machine and that outlives the ranks: ``ringlet run --restarts``."""
LONGEST_DELAY = 60.0
MAX_FRUITLESS = 2
"""So many attempts in a row may fail without any progress."""
_TRIED_AGAIN = (EXIT_FAILED, EXIT_RANK_DIED)
_NOT_TRIED_AGAIN = (EXIT_USAGE, EXIT_DIVERGED, EXIT_INTERRUPTED)
_TICK_SECONDS = 0.05

Token = frozenset[tuple[str, int, int]]
"""What has been reached; anything in it that was not there before is progress."""


def current_attempt(environ: Mapping[str, str] = os.environ) -> int:
    """How often the job of this rank was started before; 0 also for a process that is no rank of ours."""
    text = environ.get(ATTEMPT_VARIABLE, "")
    return int(text) if is_rank() and text.isascii() and text.isdecimal() else 0


def restart_cause(environ: Mapping[str, str] = os.environ) -> str:
    """Why the job of this rank was started again, in one line; empty if it was not."""
    return environ.get(CAUSE_VARIABLE, "") if current_attempt(environ) else ""


def attempt_environment(number: int, cause: str | None) -> dict[str, str]:
    """What ranks are told about earlier attempts: how many there were, and why the last of them ended."""
    text = cause or "the job failed" if number else ""
    line = "".join(character if character.isprintable() else " " for character in text)
    return {ATTEMPT_VARIABLE: str(number), CAUSE_VARIABLE: line}


def may_help(outcome: Outcome) -> bool:
    """Whether another attempt may end better."""
    if outcome.is_loss:
        return outcome.asked is None and outcome.exit_code not in _NOT_TRIED_AGAIN
    return outcome.asked is None and outcome.exit_code in _TRIED_AGAIN


def restart_delay(restart: int, environ: Mapping[str, str] = os.environ) -> float:
    """Seconds before the restart with this number, counted from 1."""
    text = environ.get(DELAY_VARIABLE)
    if not text:
        return float(min(2.0 ** min(restart - 1, 30), LONGEST_DELAY))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{DELAY_VARIABLE}={text[:40]!r} is no time: expected seconds, as in {DELAY_VARIABLE}=5")
    return seconds


@final
@dataclass(frozen=True)
class CheckpointWatch:
    """Looks from outside at the checkpoints of a run: a new one is progress."""

    folder: Place
    is_elsewhere: bool = False
    """Whether the checkpoints may be on another machine, where no one can look."""

    def token(self) -> Token | None:
        """Which checkpoints there are; None if that cannot be known. One that was written again counts as another."""
        found = set()
        if not isinstance(self.folder, Path):
            return self._of_object_store()
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.startswith("step-"):
                        status = entry.stat(follow_symlinks=False)
                        found.add((entry.name, status.st_ino, status.st_mtime_ns))
        except OSError:
            if self.is_elsewhere:
                return None
        return frozenset(found)

    def _of_object_store(self) -> Token | None:
        """By the names of checkpoints and what their manifests are tagged with."""
        try:
            storage = open_location(self.folder)
            steps = [name for name in storage.list() if name.startswith("step-")]
            tags = {step: storage.list(step).get("manifest.json") for step in steps}
        except (OSError, UsageError):
            return None
        return frozenset((step, 0, hash(info)) for step, info in tags.items() if info is not None)


@dataclass
class Supervisor:
    """Starts a job up to ``limit`` times again.

    ``attempt`` does it once: it is told how often the job was started before, and whether it has progressed since the
    very first start.
    """

    limit: int
    attempt: Callable[[int, bool], Outcome]
    say: Callable[[str], None]
    workers: str = "all workers"
    token: Callable[[], Token | None] = lambda: None
    caught: Sequence[int] = ()
    """Signals that have come in between: with the first of them there is no restart any more."""

    def run(self) -> Outcome:
        """The outcome of the last attempt."""
        has_progressed, fruitless, number = False, 0, 0
        while True:
            before, start = self.token(), monotonic()
            outcome = self.attempt(number, has_progressed)
            if not self.limit or not may_help(outcome):
                return outcome
            after, seconds = self.token(), monotonic() - start
            moved = bool(after and after - (before or frozenset()))
            has_progressed = has_progressed or moved
            if not outcome.is_absence:
                fruitless = 0 if moved or after is None else fruitless + 1
            reason = f"{outcome.cause or 'the job failed'} after {seconds:.1f} s"
            if self._is_over(number, fruitless, reason):
                return outcome
            number += 1
            signal_number = self._wait(number, reason)
            if signal_number is not None:
                return Outcome(SIGNAL_BASE + signal_number, asked=signal_number)

    def _is_over(self, number: int, fruitless: int, reason: str) -> bool:
        """Whether to give up, which is said."""
        if fruitless >= MAX_FRUITLESS:
            left = f"{number} of {self.limit} restarts were used"
            self.say(f"no more restarts: {reason}; {fruitless} attempts in a row made no new checkpoint ({left})")
            return True
        if number >= self.limit:
            self.say(f"no more restarts: {reason}; all {self.limit} were used (--restarts {self.limit})")
            return True
        return False

    def _wait(self, number: int, reason: str) -> int | None:
        """Tell of the restart and wait for its time; a signal that came, if any."""
        delay = restart_delay(number)
        when = f" in {delay:g} s" if delay else ""
        self.say(f"restart {number} of {self.limit}: {reason}; starting {self.workers} again{when}")
        end = monotonic() + delay
        while not self.caught and monotonic() < end:
            sleep(min(_TICK_SECONDS, delay))
        if not self.caught:
            return None
        self.say("stopped while waiting to start again")
        return self.caught[0]
