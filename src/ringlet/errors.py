"""One exception tree: everything Ringlet raises on purpose.

A message says what happened (with values), what was expected and how to mend it. The command line prints the message
without a traceback and leaves with ``exit_code``; any other exception is a defect of Ringlet and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_RANK_DIED = 3
EXIT_DIVERGED = 4
EXIT_INTERRUPTED = 5

MAX_LISTED = 12
"""How many known names a message lists: of more, the nearest ones."""
_ALIKE = 0.5
"""How much like a wrong name a right one must be to be proposed."""
_MAX_DIGITS = 18


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
        self.suggestion = next(iter(nearest_names(name, names, least=_ALIKE)), None)
        hint = f" Did you mean '{self.suggestion}'?" if self.suggestion else ""
        if len(names) > MAX_LISTED:
            names = [*sorted(nearest_names(name, names)[:MAX_LISTED]), "…"]
        super().__init__(f"unknown {kind} '{name}'.{hint} Known: {', '.join(names) or 'none'}")
        self.kind = kind
        self.name = name


def nearest_names(name: str, known: Iterable[str], *, least: float = 0.0) -> list[str]:
    """The known names that are at least so much like ``name`` (0 to 1), the nearest first.

    Of names that are equally like it the one wins that begins like it for longer, then the one with the nearest number:
    resnet21 is nearer to resnet20 than to resnet32, and resnet51 nearer to resnet50 than to resnet56.
    """
    wanted = name.lower()
    rated = [(_likeness(wanted, candidate.lower()), candidate) for candidate in known]
    return [candidate for rating, candidate in sorted(rated, key=lambda one: (*one[0], one[1])) if -rating[0] >= least]


def _likeness(wanted: str, candidate: str) -> tuple[float, int, int]:
    """A key that sorts the nearest first: minus the ratio of equal letters, minus the equal beginning, the distance."""
    pairs = zip(wanted, candidate, strict=False)
    num_equal = next((place for place, (one, other) in enumerate(pairs) if one != other), len(wanted))
    distance = abs(_digits(wanted) - _digits(candidate))
    return -SequenceMatcher(None, candidate, wanted).ratio(), -num_equal, distance


def _digits(name: str) -> int:
    return int("".join(letter for letter in name if letter in "0123456789")[:_MAX_DIGITS] or 0)


def show(value: object) -> str:
    """A short representation of any value for a message, safe for hostile ones (huge numbers, deep nesting)."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else text[:57] + "…"


class SpecError(RingletError):
    """A network that cannot exist: shapes that do not fit, cycles, missing inputs, a malformed file."""

    exit_code = EXIT_USAGE


class DataError(RingletError):
    """Data that is missing, truncated, malformed or hostile."""


class ModelFileError(RingletError):
    """A model file that is missing, damaged or does not belong to its network."""


class NewerModelFileError(ModelFileError):
    """A model file in a format of a newer version of Ringlet: nothing is wrong with it."""


class FileWriteError(RingletError):
    """A file that could not be written: a full disk, a limit, a file system that fails."""


class KernelError(RingletError):
    """Kernels that were asked for but are not there, or arrays that break a kernel's contract."""


class CommunicationError(RingletError, RuntimeError):
    """Ranks that disagree about what they exchange, or a group of ranks that cannot be formed.

    A RuntimeError too, as in PyTorch and Horovod: programs that catch those catch it.
    """


class RankFailedError(RingletError, RuntimeError):
    """Another rank of the job failed. A RuntimeError too."""

    exit_code = EXIT_RANK_DIED


class CheckpointError(RingletError):
    """A checkpoint that is missing, damaged, cannot be written or does not belong to its run."""

    state = "damaged"
    """What this says about a checkpoint that was read."""


class UnreadableCheckpointError(CheckpointError):
    """The storage did not give a checkpoint's bytes (EIO, ESTALE, permissions): it may well be good."""

    state = "unreadable"


class NewerCheckpointError(CheckpointError):
    """A checkpoint in a format of a newer version of Ringlet: nothing is wrong with it."""

    state = "too new"


class DivergedError(RingletError):
    """Training produced numbers that are not finite."""

    exit_code = EXIT_DIVERGED


class InterruptedRunError(RingletError):
    """The user or the system stopped the run; what was reached is saved."""

    exit_code = EXIT_INTERRUPTED
