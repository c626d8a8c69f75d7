"""Which processes form the world of a session."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.named.errors import ArgumentsError


def choose_world(comm: Any) -> Communicator | None:
    """Initialise the world of ``session.init(comm)``; None if this process is not in it. Every process must call."""
    if comm is None:
        world.init()
        return world.communicator()
    if hasattr(comm, "Get_rank") and hasattr(comm, "Dup"):
        from ringlet.comm.mpi import mpi_communicator

        return world.use(mpi_communicator(comm))
    if not isinstance(comm, Iterable) or isinstance(comm, str):
        raise ArgumentsError(f"comm={comm!r}: expected None, a list of ranks or an mpi4py communicator")
    return _choose_ranks(sorted({int(rank) for rank in comm}))


def _choose_ranks(ranks: list[int]) -> Communicator | None:
    """Everybody tells its list; every list becomes a group of those that gave it."""
    world.init()
    whole = world.communicator()
    lists = [json.loads(told) for told in whole.allgather_bytes(json.dumps(ranks).encode())]
    found = None
    for wanted in dict.fromkeys(tuple(told) for told in lists):
        givers = [rank for rank in wanted if 0 <= rank < whole.size and tuple(lists[rank]) == wanted]
        if len(givers) != len(wanted) or not wanted:
            world.shutdown()
            raise ArgumentsError(
                f"init(comm={list(wanted)}) was called, but rank {sorted(set(wanted) - set(givers))} called with other "
                f"ranks or does not exist: expected the same list on all of its ranks, out of 0 to {whole.size - 1}"
            )
        group = whole.group(wanted)
        if list(wanted) == ranks:
            found = group
    if found is None:
        world.shutdown()
        return None
    return world.use(found)


def can_use_threads(communicator: Communicator) -> bool:
    """Whether a thread of its own may communicate while the program does."""
    if communicator.name != "mpi" or len(communicator.local_sizes) == 1:
        return True  # shared memory, or libraries that always allow it
    from ringlet.comm.mpi import threads_supported

    return threads_supported()
