"""One exception tree: everything Ringlet raises on purpose.

A message says what happened (with values), what was expected and how to mend it. The command line prints the message
without a traceback and leaves with ``exit_code``; any other exception is a defect of Ringlet and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_RANK_DIED = 3
EXIT_DIVERGED = 4
EXIT_INTERRUPTED = 5

MAX_LISTED = 12
"""How many known names a message lists: of more, the nearest ones."""


class RingletError(Exception):
    """Base of all errors that a user can mend."""

    exit_code = EXIT_FAILED


class UsageError(RingletError):
    """A request that makes no sense as written: unknown names, contradicting options."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A configuration value that is missing, of the wrong type or out of range."""


class UnknownNameError(UsageError):
    """A name that is not known; carries the nearest known one as a hint."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        lowered = {candidate.lower(): candidate for candidate in names}
        matches = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
        hint = f" Did you mean '{lowered[matches[0]]}'?" if matches else ""
        if len(names) > MAX_LISTED:
            nearest = get_close_matches(name.lower(), lowered, n=MAX_LISTED, cutoff=0.0)
            names = [*sorted(lowered[match] for match in nearest), "…"]
        super().__init__(f"unknown {kind} '{name}'.{hint} Known: {', '.join(names) or 'none'}")
        self.kind = kind
        self.name = name
        self.suggestion = lowered[matches[0]] if matches else None


class SpecError(RingletError):
    """A network that cannot exist: shapes that do not fit, cycles, missing inputs, a malformed file."""

    exit_code = EXIT_USAGE


class DataError(RingletError):
    """Data that is missing, truncated, malformed or hostile."""


class ModelFileError(RingletError):
    """A model file that is missing, damaged or does not belong to its network."""


class KernelError(RingletError):
    """Kernels that were asked for but are not there, or arrays that break a kernel's contract."""


class CommunicationError(RingletError):
    """Ranks that disagree about what they exchange, or a group of ranks that cannot be formed."""


class RankFailedError(RingletError):
    """Another rank of the job failed."""

    exit_code = EXIT_RANK_DIED


class CheckpointError(RingletError):
    """A checkpoint that is missing, damaged, cannot be written or does not belong to its run."""


class DivergedError(RingletError):
    """Training produced a loss that is not a number."""

    exit_code = EXIT_DIVERGED


class InterruptedRunError(RingletError):
    """The user or the system stopped the run; what was reached is saved."""

    exit_code = EXIT_INTERRUPTED
