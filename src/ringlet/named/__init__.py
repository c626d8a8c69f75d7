"""Named collectives over a communicator: in any order, from any thread, with errors that reach all ranks.

Takes what programs submit (:class:`Submission`), each with a name; gives results (:class:`Handle`) once all ranks of
the process set have submitted that name. ``kinds`` describes each collective, ``rounds`` is how ranks tell each other
what they have, ``table`` the state machine that is the same on every rank, ``execution`` what then happens.
``session`` is the state of the process, ``horovod`` what Horovod's names mean, for every framework.
"""

from ringlet.named import session
from ringlet.named.buffers import Buffer
from ringlet.named.collectives import NamedCollectives
from ringlet.named.reductions import Reduction
from ringlet.named.session import ProcessSet
from ringlet.named.submissions import (
    ArgumentsError,
    BrokenCollectivesError,
    CollectiveError,
    DisagreementError,
    DuplicateNameError,
    Handle,
    LostRankError,
    Submission,
)

__all__ = [
    "ArgumentsError",
    "BrokenCollectivesError",
    "Buffer",
    "CollectiveError",
    "DisagreementError",
    "DuplicateNameError",
    "Handle",
    "LostRankError",
    "NamedCollectives",
    "ProcessSet",
    "Reduction",
    "Submission",
    "session",
]
