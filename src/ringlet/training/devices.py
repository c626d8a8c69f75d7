"""What a worker computes on: a GPU of its own or the processor, and how many threads.

The threads of a kernel wait for each other every few microseconds. Where other programs keep the cores busy, one of
them is often not running while the rest wait for it, and a step may take ten times as long as on one thread. Results do
not depend on the number of threads, so it may change from step to step: from time to time the other number is tried
(:class:`StepThreads`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import final

from ringlet.comm import world
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.errors import UsageError
from ringlet.kernels.contract import Kernels
from ringlet.launch.resources import usable_cores
from ringlet.libraries import require

SPELL_SECONDS = 0.05
SPELL_STEPS = 5
"""A number of threads is judged by the steps of a spell, which lasts at least so long."""
LONG_STEP_SECONDS = 0.1
"""Steps that take longer have large kernels, for which waiting matters little: nothing is tried."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""How long the better number is kept before the other one is tried again; twice as long after each trial in vain."""
CLEARLY_FASTER = 0.7
"""One thread must take less than this share of the time of all to be kept; all are kept if they are faster at all."""
CLEARLY_SLOWER = 1.5
"""If steps take this many times as long as in the spell before, the other number is tried at once."""


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


@final
class StepThreads:
    """A context around each training step; outside of it the kernels have all their threads.

    Nothing happens without kernels, or with such as have one thread.
    """

    def __init__(self, kernels: Kernels | None = None, *, clock: Callable[[], float] = perf_counter) -> None:
        num_threads = getattr(kernels, "num_threads", None)
        self._kernels = kernels
        self._all: int = num_threads() if num_threads is not None else 1
        self._clock = clock
        self._used = self._all
        self._is_trial = False
        self._kept_seconds: float | None = None
        """Of a step with the number that is in use, as measured last."""
        self._pause = FIRST_PAUSE_SECONDS
        self._next_trial = 0.0
        self._began = 0.0
        self._is_warm = False
        self._begin_spell()

    def __enter__(self) -> None:
        if self._all > 1:
            self._set(self._used)
            self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        if self._all == 1:
            return
        now = self._clock()
        self._set(self._all)
        if not self._is_warm:  # the first step gets its memory
            self._is_warm = True
            return
        self._num_steps += 1
        self._seconds += now - self._began
        if self._num_steps >= SPELL_STEPS and self._seconds >= SPELL_SECONDS:
            self._judge(self._seconds / self._num_steps, now)
            self._begin_spell()

    @contextmanager
    def as_in_steps(self) -> Iterator[None]:
        """Around other work of the kernels: they have the number of threads of a step, which is not judged by it."""
        if self._used == self._all:
            yield
            return
        self._set(self._used)
        try:
            yield
        finally:
            self._set(self._all)

    def _set(self, number: int) -> None:
        self._kernels.set_num_threads(number)  # type: ignore[union-attr]  # only those with threads come here

    def _begin_spell(self) -> None:
        self._num_steps, self._seconds = 0, 0.0

    def _judge(self, seconds: float, now: float) -> None:
        before, self._kept_seconds = self._kept_seconds, seconds
        if not self._is_trial:
            is_slower = before is not None and seconds > CLEARLY_SLOWER * before
            self._is_trial = seconds < LONG_STEP_SECONDS and (is_slower or now >= self._next_trial)
            if self._is_trial:
                self._swap()
            return
        self._is_trial = False
        assert before is not None
        if seconds < before * (CLEARLY_FASTER if self._used == 1 else 1.0):
            self._pause = FIRST_PAUSE_SECONDS
        else:
            self._swap()
            self._kept_seconds = before
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._next_trial = now + self._pause

    def _swap(self) -> None:
        self._used = 1 if self._used == self._all else self._all
