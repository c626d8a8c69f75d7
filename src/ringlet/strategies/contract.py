"""What every way to agree offers to the training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.engines.contract import Floats, Replica

OnReady = Callable[[int, int], None]


class Strategy(Protocol):
    """How replicas agree. Every rank must call every method, in the same order.

    A step: :meth:`begin`; for each of this rank's shards a pass of the replica and :meth:`add`; :meth:`agree` on the
    figures of all shards; :meth:`update`. After it all ranks hold the same parameters and the same running statistics.
    """

    comm: Communicator
    num_shards: int
    """Into how many shards a global batch is cut."""
    shards: range
    """The shards that this rank computes."""

    @property
    def parameters(self) -> Floats:
        """The flat buffer in which the replica's parameters must live: one per machine."""

    @property
    def gradients(self) -> Floats:
        """The flat buffer into which the replica must write its gradients."""

    def attach(self, replica: Replica) -> None:
        """Begin with the parameters and running statistics of rank 0, on all ranks."""

    def begin(self) -> None:
        """A new step begins."""

    @property
    def on_ready(self) -> OnReady | None:
        """What the replica must call during its backward pass, if anything."""

    def add(self, shard: int, num_samples: int) -> None:
        """Take gradients and running statistics of the replica as the contribution of ``shard``."""

    def agree(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """Figures of all shards, one row each; a rank fills the rows of its shards and leaves the others zero."""

    def update(self, *, step: int, learning_rate: float, num_samples: int) -> None:
        """Turn the contributions of all shards, of ``num_samples`` samples in all, into new parameters."""

    def skip(self) -> None:
        """Instead of :meth:`update`: leave everything as it was before this step."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the optimizer's state arrays."""

    def save(self) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """Copies of parameters and running statistics (one array) and of the optimizer's state of all parameters."""

    def load(self, values: Floats | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Go on from what rank 0 passes (the others: None), as :meth:`save` gave it on any number of ranks."""
