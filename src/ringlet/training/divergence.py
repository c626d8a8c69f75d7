"""Numbers that are not finite are never kept: a look at parameters and state after an epoch and before they are saved.

Steps refuse loss, gradients and statistics that are not finite before they change anything, and so they do with
gradients that are large enough to make the update overflow. What is left is an update that overflows little by little,
or memory that was damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data.partition import bounds
from ringlet.engines.contract import FlatTensors
from ringlet.errors import DivergedError
from ringlet.strategies.finite import first_not_finite, is_finite
from ringlet.training.progress import Progress

ADVICE = "Lower the learning rate, clip gradients (--clip-norm 1) or check the data"


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
