"""All that training changes, laid out in memory that the ranks of a machine share: for checkpoints.

Every rank copies the ranges that it owns, all at once, so a copy takes as long as a rank's part of it. The copy stays
as it is until the next one: a thread of rank 0 may write it to disk meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.compression import Compression, TopK
from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.strategies.copies import Copies
from ringlet.strategies.ownership import OwnedRange


@final
class SavedState:
    """Values (parameters, then running statistics) of ``copies`` and the optimizer's ``state``, gathered or given out.

    ``state`` is this rank's part for its ranges ``owned``. What a compression has left out (``residuals``) counts as
    state. Every rank must call every method.
    """

    def __init__(
        self,
        comm: Communicator,
        copies: Copies,
        state: Mapping[str, NDArray[Any]],
        owned: Sequence[OwnedRange],
        residuals: Residuals,
        num_parameters: int,
    ) -> None:
        self._comm, self._own_copies, self._state, self._owned = comm, copies, state, owned
        self._residuals, self._num_parameters = residuals, num_parameters
        self._copies: dict[str, NDArray[Any]] | None = None

    def gather(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Copies of the values and of the optimizer's whole state, the same on every rank of a machine."""
        values, state = self._memory()
        current = self._own_copies.values
        for owned in self._owned:
            part = owned.elements.slice()
            values[part] = current[part]
            for name, own in self._state.items():
                state[name][part] = own[owned.in_state.slice()]
        self._residuals.gather(state)
        if self._comm.local_rank == 0:
            values[self._num_parameters :] = current[self._num_parameters :]
        self._comm.local.barrier()
        return values, state

    def give_out(self, values: NDArray[Any] | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Take over what rank 0 passes (the others: None), on all ranks of all machines."""
        own_values, own_state = self._memory()
        if self._comm.rank == 0:
            assert values is not None
            assert state is not None
            check_state(tuple(self._state), state, self._num_parameters)
            own_values[:] = values
            for name in self._state:
                own_state[name][:] = state[name]
            for name, kept in shared_out(self._residuals.names, state).items():
                own_state[name][:] = kept
        self._comm.barrier()
        if self._comm.local_rank == 0:
            for copy in (own_values, *own_state.values()):
                self._comm.cross.broadcast(copy, out=copy)
        self._comm.barrier()
        self._own_copies.take(own_values)
        for owned in self._owned:
            for name, own in self._state.items():
                own[owned.in_state.slice()] = own_state[name][owned.elements.slice()]
        self._residuals.take(own_state)
        self._comm.barrier()

    def _memory(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Made when first needed: a run without checkpoints does not pay for it."""
        if self._copies is None:
            comm, values = self._comm, self._own_copies.values
            dtypes = dict.fromkeys(self._residuals.names, values.dtype) | {
                name: self._state[name].dtype for name in sorted(self._state)
            }
            self._copies = {"": comm.shared_array(values.size, values.dtype)} | {
                name: comm.shared_array(self._num_parameters, dtypes[name]) for name in dtypes
            }
        return self._copies[""], {name: copy for name, copy in self._copies.items() if name}


def check_state(own: Sequence[str], given: Mapping[str, NDArray[Any]], num_parameters: int) -> None:
    """Refuse saved state arrays that are not those named ``own``, or of another length."""
    names = {name for name in given if not is_residual(name)}
    if set(own) != names:
        raise CommunicationError(
            f"the saved optimizer has the state arrays {sorted(names)}, this one needs {sorted(own)}: continue with "
            "the optimizer of the saved run"
        )
    for name, array in given.items():
        if np.shape(array) != (num_parameters,):
            raise CommunicationError(
                f"the saved state '{name}' has {np.size(array)} elements, this network needs {num_parameters}"
            )


_PREFIX = "kept_back_"


@final
class Residuals:
    """Of the ranges ``owned`` that this rank exchanges with its peers, one on each machine."""

    def __init__(self, compression: Compression, comm: Communicator, owned: Sequence[OwnedRange]) -> None:
        self._cross = comm.cross
        self._ranges = [part.elements for part in owned]
        self._residuals: dict[Any, NDArray[Any]] = compression.residuals if isinstance(compression, TopK) else {}
        num_machines = len(comm.local_sizes)
        keeps = isinstance(compression, TopK) and num_machines > 1
        self.names = tuple(f"{_PREFIX}{machine}" for machine in range(num_machines)) if keeps else ()
        """Of the arrays, by machine; none if nothing is left out."""

    def gather(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write what all machines have left out of this rank's ranges; every peer must call."""
        for elements in self._ranges if self.names else ():
            part = elements.slice()
            kept = self._residuals.get(elements)
            own = np.zeros(elements.size, arrays[self.names[0]].dtype) if kept is None else kept
            for name, row in zip(self.names, self._cross.allgather(own[None]), strict=True):
                arrays[name][part] = row

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what this machine's array holds."""
        for elements in self._ranges if self.names else ():
            own = arrays[self.names[self._cross.rank]]
            self._residuals[elements] = own[elements.slice()].copy()


def is_residual(name: str) -> bool:
    """Whether a saved array is one of these."""
    return name.startswith(_PREFIX)


def shared_out(names: Sequence[str], saved: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | float]:
    """What each of ``names`` begins with, given what any number of machines has saved."""
    old = [array for name, array in sorted(saved.items()) if is_residual(name)]
    if len(old) == len(names):
        return {name: saved[name] for name in names}
    zeros: dict[str, NDArray[Any] | float] = dict.fromkeys(names, 0.0)
    return zeros | {name: np.sum(old, axis=0) for name in names[:1] if old}
