"""Memory per worker: exact for the native engine's plan, an estimate for the others.

Synchronous workers of a machine share one copy of the parameters and of the optimizer's state; each has a row of
gradients (and running statistics) of its own. Workers that average have all of it for themselves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod

import numpy as np

from ringlet.kernels.contract import padded_lanes
from ringlet.models.spec import ModelSpec
from ringlet.planning.workload import Workload

PREFETCHED = 3
"""Batches that a worker holds at most: the one it computes and those that are made ahead where that takes long."""
PROCESS_BYTES = 60 << 20
"""Python, NumPy and Ringlet themselves, where that was not measured."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one worker; what a machine's workers share counts by its part."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    batches: int
    process: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(asdict(self).values())

    def to_dict(self) -> dict[str, int]:
        """Plain values, for JSON."""
        return asdict(self) | {"total": self.total}


def worker_memory(
    spec: ModelSpec,
    workload: Workload,
    *,
    local_batch_size: int,
    workers_on_machine: int,
    engine: str,
    loss: str,
    averaging: bool,
    process_bytes: int = PROCESS_BYTES,
) -> Memory:
    """What one of ``workers_on_machine`` workers needs."""
    parts = 1 if averaging else workers_on_machine
    own = workload.parameter_bytes + workload.state_bytes
    return Memory(
        parameters=-(-own // parts),
        gradients=own,
        optimizer=-(-workload.optimizer_bytes // parts),
        activations=activation_bytes(spec, local_batch_size, workload.item_size, engine, loss),
        batches=PREFETCHED * local_batch_size * prod(spec.input_shape) * workload.item_size,
        process=process_bytes,
    )


def activation_bytes(spec: ModelSpec, local_batch_size: int, item_size: int, engine: str, loss: str) -> int:
    """Activations and their gradients in a training pass.

    The native engine's plan knows it to the byte. For other engines: every node's output is kept for the backward pass,
    and the largest one has a gradient on either side of a layer.
    """
    if engine == "native":
        return _arena_bytes(spec, padded_lanes(local_batch_size), item_size, loss)
    outputs = [prod(shape) for shape in spec.shapes.values()]
    return (sum(outputs) + 2 * max(outputs)) * local_batch_size * item_size


@lru_cache(maxsize=256)
def _arena_bytes(spec: ModelSpec, lanes: int, item_size: int, loss: str) -> int:
    from ringlet.engines.native.plan import arena_bytes

    return arena_bytes(spec, lanes, np.dtype(f"f{item_size}"), loss)
