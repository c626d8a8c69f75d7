"""Memory per worker: exact for the native engine's plan, an estimate for the others.

Synchronous workers of a machine share one copy of the optimizer's state, and of the parameters if these are large; each
has a row of gradients (and running statistics) of its own. Workers that average have all of it for themselves. Plans of
runs show these numbers, and training refuses what cannot fit by the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod

from ringlet.engines.engine import Engine
from ringlet.kernels.bfloat16 import parameter_dtype
from ringlet.losses import Loss
from ringlet.models.module_spec import Network
from ringlet.strategies.copies import has_own_copies

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
    spec: Network,
    *,
    dtype: str,
    num_optimizer_arrays: int,
    local_batch_size: int,
    workers_on_machine: int,
    engine: Engine,
    loss: str | Loss,
    averaging: bool,
    num_passes: int = 1,
    training: bool = True,
    process_bytes: int = PROCESS_BYTES,
) -> Memory:
    """What one of ``workers_on_machine`` workers needs, with passes of ``local_batch_size`` samples in ``dtype``.

    A worker takes ``num_passes`` of them one after the other for a step; its batch holds the samples of all.
    """
    item_size = parameter_dtype(dtype).itemsize
    parts = 1 if averaging else workers_on_machine
    parameters = spec.num_parameters * item_size
    own = parameters + sum(info.size for info in spec.state) * item_size
    num_sharing = 1 if has_own_copies(own, [parts]) else parts
    samples = (PREFETCHED if training else 1) * num_passes * local_batch_size
    return Memory(
        parameters=-(-own // num_sharing),
        gradients=own if training else 0,
        optimizer=-(-num_optimizer_arrays * parameters // parts),
        activations=engine.activation_bytes(spec, local_batch_size, dtype, loss, training=training),
        batches=samples * prod(spec.input_shape) * item_size,
        process=process_bytes,
    )


def most_activation_bytes(spec: Network, local_batch_size: int, dtype: str) -> int:
    """More than the activations of any engine, at once: three times all outputs."""
    elements = 3 * sum(prod(shape) for shape in spec.shapes.values()) * local_batch_size
    return elements * parameter_dtype(dtype).itemsize
