"""Numbers that are not finite: how they are found, and in which words training ends because of them.

Steps refuse loss, gradients and statistics that are not finite before they change anything (:func:`find_problem`), and
so they do with gradients that are large enough to make the update overflow. What is left is an update that overflows
little by little, or memory that was damaged: so parameters and state are looked at after an epoch and before they are
saved (:func:`check_finite`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data import Batch
from ringlet.data.partition import bounds
from ringlet.engines.contract import FlatTensors
from ringlet.errors import DivergedError
from ringlet.strategies.contract import Strategy
from ringlet.strategies.finite import first_not_finite, is_finite
from ringlet.training.metric_sums import ShardSums
from ringlet.training.progress import Progress

ADVICE = "Lower the learning rate, clip gradients (--clip-norm 1) or check the data"


def find_problem(sums: ShardSums, strategy: Strategy) -> str | None:
    """What is not finite, in words: the loss, or the gradient or statistic of which layer, in which shard.

    In lockstep the same on every rank, and every rank must call, after the sums have been agreed on.
    """
    shard = sums.bad_shard()
    if shard is None:
        return None
    loss = sums.loss_of(shard)
    own = sums.bad_place(shard)
    place = b"".join(strategy.comm.allgather_bytes(own.encode())).decode() if strategy.lockstep else own
    where = f" in shard {shard} of {strategy.num_shards}" if strategy.num_shards > 1 else ""
    if not math.isfinite(loss):
        return f"the loss is {loss}{where}"
    return f"the loss is {loss:.6g}, but {place} is not finite{where}"


def explain_divergence(batch: Batch, step: int, problem: str) -> str:
    """The message of the error that ends training."""
    return (
        f"training diverged in epoch {batch.epoch + 1}, step {batch.step_in_epoch + 1} (update {step}): {problem}. "
        f"The update was not applied. {ADVICE}"
    )


def check_finite(
    comm: Communicator,
    progress: Progress,
    *tensors: FlatTensors,
    optimizer: Mapping[str, NDArray[Any]] | None = None,
    consequence: str = "It is not saved",
) -> None:
    """Raise DivergedError on all ranks if they hold a number that is not finite; every rank must call.

    The ranks of a machine hold the same, so each of them looks at a part of every array.
    """
    arrays = {place: part.flat for place, part in enumerate(tensors)} | dict(optimizer or {})
    suspects = [name for name, flat in arrays.items() if not _own_part_is_finite(comm, flat)]
    own = _explain(suspects[0], tensors) if suspects else ""
    problem = next(filter(None, comm.allgather_bytes(own.encode())), b"").decode()
    if problem:
        raise DivergedError(
            f"training diverged by epoch {progress.running_epoch} (update {progress.num_steps}): {problem} is not "
            f"finite. {consequence}. {ADVICE}"
        )


def _own_part_is_finite(comm: Communicator, flat: NDArray[Any]) -> bool:
    start, stop = bounds(flat.size, comm.local_rank, comm.local_size)
    with np.errstate(over="ignore", invalid="ignore"):
        return is_finite(flat[start:stop])


def _explain(place: int | str, tensors: tuple[FlatTensors, ...]) -> str:
    if isinstance(place, str):
        return f"the optimizer's state '{place}'"
    with np.errstate(over="ignore", invalid="ignore"):
        return f"'{first_not_finite(tensors[place].views)}'"
