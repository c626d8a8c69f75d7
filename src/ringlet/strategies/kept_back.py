"""What a compression has kept back, as arrays for checkpoints: one for each machine.

A run that goes on with as many machines continues to the bit. With another number of them the first one takes over the
sum of what all had kept back; with a single machine nothing is compressed, and nobody can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.compression import Compression, TopK
from ringlet.comm.contract import Communicator
from ringlet.strategies.ownership import OwnedRange

_PREFIX = "kept_back_"


@final
class KeptBack:
    """Of the ranges ``owned`` that this rank exchanges with its peers, one on each machine."""

    def __init__(self, compression: Compression, comm: Communicator, owned: Sequence[OwnedRange]) -> None:
        self._cross = comm.cross
        self._ranges = [part.elements for part in owned]
        self._residuals: dict[Any, NDArray[Any]] = compression.residuals if isinstance(compression, TopK) else {}
        num_machines = len(comm.local_sizes)
        keeps = isinstance(compression, TopK) and num_machines > 1
        self.names = tuple(f"{_PREFIX}{machine}" for machine in range(num_machines)) if keeps else ()
        """Of the arrays, by machine; none if nothing is kept back."""

    def gather(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write what all machines have kept back of this rank's ranges; every peer must call."""
        for elements in self._ranges if self.names else ():
            part = elements.slice()
            kept = self._residuals.get(elements)
            own = np.zeros(elements.size, arrays[self.names[0]].dtype) if kept is None else kept
            for name, row in zip(self.names, self._cross.allgather(own[None]), strict=True):
                arrays[name][part] = row

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep back what this machine's array holds."""
        for elements in self._ranges if self.names else ():
            own = arrays[self.names[self._cross.rank]]
            self._residuals[elements] = own[elements.slice()].copy()


def is_kept_back(name: str) -> bool:
    """Whether a saved array is one of these."""
    return name.startswith(_PREFIX)


def shared_out(names: Sequence[str], saved: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | float]:
    """What each of ``names`` begins with, given what any number of machines has saved."""
    old = [array for name, array in sorted(saved.items()) if is_kept_back(name)]
    if len(old) == len(names):
        return {name: saved[name] for name in names}
    zeros: dict[str, NDArray[Any] | float] = dict.fromkeys(names, 0.0)
    return zeros | {name: np.sum(old, axis=0) for name in names[:1] if old}
