"""Which device each worker computes on: a GPU of its own, or the processor."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.errors import UsageError
from ringlet.libraries import require


def join_workers(config: RunConfig) -> Communicator:
    """The communicator of all workers; every worker must call. With --device cpu it does without GPUs too."""
    return world.communicator(gpus=config.device != "cpu")


def choose_device(config: RunConfig, comm: Communicator) -> str:
    """The name of this worker's device; every worker must call. An error is the same on all workers of a machine."""
    if config.engine != "torch" or config.device == "cpu":
        return "cpu"
    require("torch")
    from ringlet.engines.torch import devices

    told = comm.local.allgather_bytes(json.dumps(devices.visible_gpus()).encode())
    seen = [json.loads(names) for names in told]
    if config.device == "auto" and not any(seen):
        return "cpu"
    return devices.take_gpu(assign_gpus(seen)[comm.local_rank])


def assign_gpus(seen: Sequence[Sequence[str]]) -> list[int]:
    """For each worker of a machine its GPU's number among those that it sees: the first that no lower one has.

    So where all see the same GPUs, each takes the one of its local rank; where the launcher shows each its own (Slurm's
    ``--gpus-per-task``), each takes that.
    """
    taken: set[str] = set()
    chosen = []
    for rank, names in enumerate(seen):
        index = next((index for index, name in enumerate(names) if name not in taken), None)
        if index is None:
            raise UsageError(_too_few(rank, len(seen), names))
        taken.add(names[index])
        chosen.append(index)
    return chosen


def _too_few(rank: int, num_workers: int, names: Sequence[str]) -> str:
    if not names:
        return (
            f"PyTorch finds no GPU for worker {rank} of this machine: expected one for each. Install a build of "
            "PyTorch with CUDA and a driver, or give --device cpu"
        )
    return (
        f"{num_workers} workers on this machine, but only {rank} GPUs for them: each needs one of its own. Start at "
        f"most {rank} workers on it, or give --device cpu"
    )
