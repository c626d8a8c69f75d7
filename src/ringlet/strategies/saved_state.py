"""All that training changes, laid out in memory that the ranks of a machine share: for checkpoints.

Every rank copies the ranges that it owns, all at once, so a copy takes as long as a rank's part of it. The copy stays
as it is until the next one: a thread of rank 0 may write it to disk meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.strategies.kept_back import KeptBack, is_kept_back, shared_out
from ringlet.strategies.ownership import OwnedRange


@final
class SavedState:
    """``values`` (parameters, then running statistics) and the optimizer's ``state``, gathered or given out.

    ``values`` are the machine's shared ones; ``state`` is this rank's part for its ranges ``owned``. What a compression
    has ``kept_back`` counts as state. Every rank must call every method.
    """

    def __init__(
        self,
        comm: Communicator,
        values: NDArray[Any],
        state: Mapping[str, NDArray[Any]],
        owned: Sequence[OwnedRange],
        kept_back: KeptBack,
        num_parameters: int,
    ) -> None:
        self._comm, self._values, self._state, self._owned = comm, values, state, owned
        self._kept_back, self._num_parameters = kept_back, num_parameters
        self._copies: dict[str, NDArray[Any]] | None = None

    def gather(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Copies of the values and of the optimizer's whole state, the same on every rank of a machine."""
        values, state = self._memory()
        for owned in self._owned:
            part = owned.elements.slice()
            values[part] = self._values[part]
            for name, own in self._state.items():
                state[name][part] = own[owned.in_state.slice()]
        self._kept_back.gather(state)
        if self._comm.local_rank == 0:
            values[self._num_parameters :] = self._values[self._num_parameters :]
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
            for name, kept in shared_out(self._kept_back.names, state).items():
                own_state[name][:] = kept
        self._comm.barrier()
        if self._comm.local_rank == 0:
            for copy in (own_values, *own_state.values()):
                self._comm.cross.broadcast(copy, out=copy)
            self._values[:] = own_values
        self._comm.barrier()
        for owned in self._owned:
            for name, own in self._state.items():
                own[owned.in_state.slice()] = own_state[name][owned.elements.slice()]
        self._kept_back.take(own_state)
        self._comm.barrier()

    def _memory(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Made when first needed: a run without checkpoints does not pay for it."""
        if self._copies is None:
            comm, dtype = self._comm, self._values.dtype
            dtypes = dict.fromkeys(self._kept_back.names, dtype) | {
                name: self._state[name].dtype for name in sorted(self._state)
            }
            self._copies = {"": comm.shared_array(self._values.size, dtype)} | {
                name: comm.shared_array(self._num_parameters, dtypes[name]) for name in dtypes
            }
        return self._copies[""], {name: copy for name, copy in self._copies.items() if name}


def check_state(own: Sequence[str], given: Mapping[str, NDArray[Any]], num_parameters: int) -> None:
    """Refuse saved state arrays that are not those named ``own``, or of another length."""
    names = {name for name in given if not is_kept_back(name)}
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
