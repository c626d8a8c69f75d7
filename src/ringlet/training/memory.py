"""Whether a run fits into memory: asked before it allocates, and a clear word where an allocation fails all the same.

Each worker of a machine needs its own activations, so the need of all of them together is compared with what the
machine, or the container, has left. The native engine's need is exact; that of others is an estimate, and only what is
more than twice too much is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import numpy as np

from ringlet.comm.contract import Communicator, Op
from ringlet.engines.engine import Engine
from ringlet.errors import ConfigError
from ringlet.kernels.bfloat16 import parameter_dtype
from ringlet.launch.resources import available_bytes
from ringlet.losses import Loss
from ringlet.models.module_spec import Network
from ringlet.strategies.memory import PREFETCHED, Memory, most_activation_bytes, worker_memory

VARIABLE = "RINGLET_MEMORY_CHECK"
"""``off``: nothing is refused."""
_IN_TRAINING = "Lower it, compute it in several passes (--accumulate) or start fewer workers on a machine. "
_ANYWAY = f"If the estimate is wrong, {VARIABLE}=off proceeds anyway"
_SIGNS = ("can't allocate memory", "out of memory", "not enough memory", "RESOURCE_EXHAUSTED", "OOM when allocating")
"""In the messages of frameworks whose errors of memory have no type of their own that could be imported here."""


@final
@dataclass(frozen=True)
class Demand:
    """What is known of the passes of one worker before they are made."""

    spec: Network
    engine: Engine
    loss: str | Loss
    dtype: str
    """Of activations."""
    num_optimizer_arrays: int = 0
    averaging: bool = False
    num_passes: int = 1
    training: bool = True
    on_gpu: bool = False
    """Activations are somewhere else then."""

    def memory(self, local_batch_size: int, num_workers: int) -> Memory:
        """Of one of ``num_workers`` workers of a machine; the process itself is there already."""
        found = worker_memory(
            self.spec,
            dtype=self.dtype,
            num_optimizer_arrays=self.num_optimizer_arrays,
            local_batch_size=local_batch_size,
            workers_on_machine=num_workers,
            engine=self.engine,
            loss=self.loss,
            averaging=self.averaging,
            num_passes=self.num_passes,
            training=self.training,
            process_bytes=0,
        )
        return Memory(**{**vars(found), "activations": 0}) if self.on_gpu else found

    def certain(self, local_batch_size: int, num_workers: int) -> int:
        """What a worker needs at least: batches are not always made ahead, and estimates are halved."""
        found = self.memory(local_batch_size, num_workers)
        sure = found.activations if self.engine.knows_memory else found.activations // 2
        batch = found.batches // (PREFETCHED if self.training else 1)
        return found.parameters + found.gradients + found.optimizer + sure + batch

    def surely_fits(self, local_batch_size: int, available: int) -> bool:
        """A first look that costs nothing."""
        rough = most_activation_bytes(self.spec, local_batch_size, self.dtype)
        arrays = (2 + self.num_optimizer_arrays) * self.spec.num_parameters * parameter_dtype(self.dtype).itemsize
        return (2 + self.num_passes) * rough + 2 * arrays < available


def check_memory(demand: Demand, local_batch_size: int, comm: Communicator, num_shards: int) -> None:
    """Raise ConfigError on all workers if those of any machine do not fit into its memory; every worker must call.

    A pass has ``local_batch_size`` samples, a step ``num_shards`` such passes.
    """
    available = None if os.environ.get(VARIABLE, "").lower() == "off" else available_bytes()
    known = np.array([np.iinfo(np.int64).max if available is None else available], np.int64)
    left = int(comm.local.allreduce(known, Op.MIN)[0])  # the same for all ranks
    own = explain_lack(demand, local_batch_size, comm.local_size, num_shards, left)
    problem = next(filter(None, comm.allgather_bytes(own.encode())), b"").decode() if comm.size > 1 else own
    if problem:
        raise ConfigError(problem)


def explain_lack(demand: Demand, local_batch_size: int, num_workers: int, num_shards: int, available: int) -> str:
    """Why ``num_workers`` workers do not fit into ``available`` bytes; empty if they may."""
    if demand.surely_fits(local_batch_size, available // num_workers):
        return ""
    if num_workers * demand.certain(local_batch_size, num_workers) <= available:
        return ""
    need = demand.memory(local_batch_size, num_workers)
    each = (
        f" for each of {num_workers} workers of this machine, {_text(num_workers * need.total)} in all"
        if (num_workers > 1)
        else ""
    )
    about = "" if demand.engine.knows_memory else "about "
    found = (
        f"a pass over {local_batch_size:,} samples with network '{demand.spec.name}' needs {about}{_text(need.total)} "
        f"of memory{each} ({_text(need.activations)} for activations); {_text(available)} are available. "
    )
    largest = largest_batch(demand, local_batch_size, num_workers, available)
    if largest == 0:
        return f"{found}Not even one sample fits: choose a smaller network or smaller images. {_ANYWAY}"
    whole = f", a global batch of {largest * num_shards:,}" if num_shards > 1 else ""
    option, advice = ("--local-batch-size", _IN_TRAINING) if demand.training else ("--batch-size", "")
    return f"{found}The largest batch that fits is {largest:,} ({option}){whole}. {advice}{_ANYWAY}"


def largest_batch(demand: Demand, local_batch_size: int, num_workers: int, available: int) -> int:
    """The most samples per pass, fewer than ``local_batch_size``, that fit; 0 if not even one does."""
    fits, too_many = 0, local_batch_size
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if num_workers * demand.memory(middle, num_workers).total <= available:
            fits = middle
        else:
            too_many = middle
    return fits


@contextmanager
def clear_memory_errors(what: str) -> Iterator[None]:
    """Turn a framework's error of memory that ran out while ``what`` was done into one that says what to do."""
    try:
        yield
    except Exception as error:
        if not is_memory_error(error):
            raise
        raise memory_error(error, f" while {what}") from error


def memory_error(error: BaseException, when: str = "") -> ConfigError:
    """The error to raise in place of ``error``."""
    available = available_bytes()
    left = "" if available is None else f"; {_text(available)} are available"
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return ConfigError(f"memory ran out{when} ({reason}){left}. Make the batch smaller, or start fewer workers")


def is_memory_error(error: BaseException) -> bool:
    """Whether memory ran out: NumPy's and Python's MemoryError, and what torch, TensorFlow and JAX say."""
    if isinstance(error, MemoryError):
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"OutOfMemoryError", "ResourceExhaustedError"}:
        return True
    return "RuntimeError" in kinds and any(sign in str(error) for sign in _SIGNS)


def _text(num_bytes: int) -> str:
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if num_bytes >= 1 << power:
            return f"{num_bytes / (1 << power):.3g} {unit}"
    return f"{num_bytes / 1024:.3g} KiB"
