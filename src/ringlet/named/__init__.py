"""Named collectives over a communicator: in any order, from any thread, with errors that reach all ranks.

Takes requests (:class:`Request`), each with a name; gives results once all ranks of the process set have submitted
that name. ``engine`` holds the rounds in which ranks tell each other what they have, ``table`` the state machine that
is the same on every rank, ``execution`` what then happens. ``session`` is the state of the process.
"""

from ringlet.named import session
from ringlet.named.buffers import Buffer
from ringlet.named.engine import Engine
from ringlet.named.errors import (
    ArgumentsError,
    BrokenEngineError,
    CollectiveError,
    DuplicateNameError,
    LostRankError,
)
from ringlet.named.pending import Pending
from ringlet.named.process_sets import ProcessSet
from ringlet.named.requests import Reduction, Request

__all__ = [
    "ArgumentsError",
    "BrokenEngineError",
    "Buffer",
    "CollectiveError",
    "DuplicateNameError",
    "Engine",
    "LostRankError",
    "Pending",
    "ProcessSet",
    "Reduction",
    "Request",
    "session",
]
