"""What a program submits, what it holds meanwhile, and what it gets if that does not take place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple, Protocol, final

from ringlet.comm.contract import Array
from ringlet.errors import CommunicationError, RankFailedError, RingletError
from ringlet.named.buffers import Buffer
from ringlet.named.reductions import Reduction

NO_NUMBER = 0xFFFFFFFF
"""In place of the number, for names that end in none."""


# -- errors: every rank of the process set gets the same one for the same collective ----------------------------------
class CollectiveError(RingletError, RuntimeError):
    """A collective that did not take place: on no rank. Others can follow unless the process set was shut down."""


class ArgumentsError(CollectiveError, ValueError):
    """Arguments that cannot be: not on this rank, or not together with those of the other ranks."""


class DisagreementError(ArgumentsError):
    """Requests of ranks that do not fit together: other shapes, dtypes, operations, roots, …"""


class DuplicateNameError(ArgumentsError):
    """A name that is already under way on this rank."""


class LostRankError(CollectiveError, RankFailedError):
    """Another rank has ended or failed; nothing is possible any longer."""


class BrokenCollectivesError(CollectiveError, CommunicationError):
    """Communication failed in the middle; nothing is possible any longer."""


@dataclass(frozen=True, eq=False)
class Submission:
    """One collective as one rank submits it. Arrays must not be touched until it has finished.

    ``kind`` is one of :data:`ringlet.named.kinds.KINDS`. Several ``inputs`` are a group, which runs together.
    ``outputs`` (allreduce, broadcast) are where results go, may be the inputs, and default to new arrays. ``prescale``
    multiplies inputs, ``postscale`` results. ``root`` is a rank of the whole job, in process sets too. ``splits``: how
    many rows go to each rank of an alltoall (default: equal parts).
    """

    kind: str
    name: str
    inputs: tuple[Array, ...] = ()
    outputs: tuple[Array, ...] | None = None
    op: Reduction = Reduction.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: tuple[int, ...] | None = None


class Key(NamedTuple):
    """A name in two parts."""

    stem: str
    number: int

    def __str__(self) -> str:
        return self.stem if self.number == NO_NUMBER else f"{self.stem}{self.number}"


@lru_cache(16384)
def split_name(name: str) -> Key:
    """The parts of a name: its last digits are the number, unless they begin with a zero or are very many.

    Names often end in a number that grows (``allreduce.noname.17``). It is told apart from the rest, so that the same
    submission under the next number is known already.
    """
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or not digits.isascii() or len(digits) > 9 or (digits[0] == "0" and digits != "0"):
        return Key(name, NO_NUMBER)
    return Key(stem, int(digits))


class Driver(Protocol):
    """What makes submissions finish."""

    def drive(self, handle: Handle) -> None:
        """Return when it has finished."""

    def nudge(self) -> None:
        """Someone wants to know; see to it that submissions make progress."""

    def learned(self, handle: Handle | None = None) -> None:
        """The program knows that this one has finished, or has waited: that all that have finished did so."""


@final
class Handle:
    """A submission that is under way; its results appear here. Made by :class:`~ringlet.named.NamedCollectives`."""

    __slots__ = (
        "_convert", "_driver", "_error", "_results", "action", "awaited", "buffer", "finished", "in_background", "key",
        "kind", "name", "signature", "submission", "submitted", "warned",
    )  # fmt: skip

    def __init__(
        self,
        driver: Driver,
        submission: Submission,
        key: Key,
        signature: str,
        buffer: Buffer | None = None,
        action: Callable[[], Any] | None = None,
        convert: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """``convert`` turns the arrays into what :meth:`wait` gives, in the thread that waits first."""
        self._driver = driver
        self.name = submission.name
        self.kind = submission.kind
        self.key = key
        self.signature = signature
        self.submitted = monotonic()
        self.submission: Submission | None = submission
        """None once it has finished, so that arrays are let go; likewise the next two."""
        self.buffer = buffer
        self.action = action
        self.awaited = False
        """Someone sleeps until it has finished."""
        self.in_background = False
        """It makes progress without anyone who waits."""
        self.warned = False
        self.finished = False
        """Like :meth:`done`, and nothing else happens."""
        self._results: Any = []
        self._convert = convert
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        if self.finished:
            self._driver.learned(self)
        else:
            self._driver.nudge()
        return self.finished

    def wait(self) -> Any:
        """The results, one array for each input; raises what went wrong, on all ranks. May be called again.

        An alltoall gives the rows and how many came from each rank; a join the rank that joined last.
        """
        if not self.finished:
            self._driver.drive(self)
        self._driver.learned()
        if self._error is not None:
            raise self._error
        if self._convert is not None:
            self._results = self._convert(self._results)
            self._convert = None  # lets go of the tensors
        return self._results

    def __call__(self) -> Any:
        """The same as :meth:`wait`."""
        return self.wait()

    def finish(self, results: list[Any], error: BaseException | None = None) -> None:
        """For the rounds: it is over."""
        self._results, self._error = results, error
        self.submission = self.buffer = self.action = None
        self.finished = True
