"""What ranks do in tests of the comparison of replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.guards.agreement import ReplicaError, ReplicaGuard

SIZES = {"conv.weight": 100_000, "dense.weight": 69_990, "dense.bias": 10}


def train(comm: Communicator, flips: dict[str, list[int]], what: str, every: int = 5) -> dict[str, Any]:
    """Twelve updates; after the third the ranks in ``flips`` find bit ``flips[rank][1]`` of an element flipped."""
    parameters = comm.shared_array(sum(SIZES.values()), np.float32)
    statistics = np.zeros(33, np.float32)
    guard = ReplicaGuard(comm, every, sizes=SIZES)
    for step in range(1, 13):
        if comm.local_rank == 0:
            parameters += np.float32(0.1)
        statistics += np.float32(step)
        if step == 3 and str(comm.rank) in flips:
            element, bit = flips[str(comm.rank)]
            target = parameters if what == "parameters" else statistics
            target.view(np.uint32)[element] ^= np.uint32(1 << bit)
        comm.local.barrier()
        try:
            guard.after_update(step, parameters, statistics)
        except ReplicaError as error:
            return {"step": step, "message": str(error)}
    return {"step": step, "message": ""}
