"""What named collectives raise. Every rank of the process set gets the same error for the same operation."""

from __future__ import annotations

from ringlet.errors import CommunicationError, RankFailedError, RingletError


class CollectiveError(RingletError, RuntimeError):
    """An operation that did not take place: on no rank. The engine can be used further unless it was shut down."""


class ArgumentsError(CollectiveError, ValueError):
    """Arguments that cannot be: not on this rank, or not together with those of the other ranks."""


class DuplicateNameError(ArgumentsError):
    """A name that is already under way on this rank."""


class LostRankError(CollectiveError, RankFailedError):
    """Another rank has ended or failed; nothing is possible any longer."""


class BrokenEngineError(CollectiveError, CommunicationError):
    """Communication failed in the middle; nothing is possible any longer."""
