"""What a worker computes on: a GPU of its own or the processor, and how many threads it has at most.

How many of them a step uses is the matter of :mod:`ringlet.engines.threads`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.errors import UsageError
from ringlet.launch.resources import usable_cores
from ringlet.libraries import require


def join_workers(config: RunConfig) -> Communicator:
    """The communicator of all workers; every worker must call. With --device cpu it does without GPUs too."""
    return world.communicator(gpus=getattr(config.engine, "device", "cpu") != "cpu")


def choose_device(config: RunConfig, comm: Communicator) -> str:
    """The name of this worker's device; every worker must call. An error is the same on all workers of a machine."""
    if not config.engine.takes_gpus:
        return "cpu"
    require("torch")
    from ringlet.engines.torch import devices

    told = comm.local.allgather_bytes(json.dumps(devices.visible_gpus()).encode())
    seen = [json.loads(names) for names in told]
    if getattr(config.engine, "device", "auto") == "auto" and not any(seen):
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


def chosen_threads(config: RunConfig, num_local_workers: int) -> int | None:
    """As configured, else the machine's cores shared by its workers; None leaves it to the kernels.

    What OMP_NUM_THREADS says wins over the share of the cores.
    """
    if config.engine.threads is not None or num_local_workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return config.engine.threads
    return max(1, usable_cores() // num_local_workers)


@contextmanager
def blas_threads(number: int | None) -> Iterator[None]:
    """Within: BLAS uses ``number`` threads; None leaves it alone."""
    if number is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=number, user_api="blas"):
        yield
