"""Blockwise model-update filtering: averaging whose updates have a momentum of their own.

Chen and Huo, *Scalable training of deep learning machines by incremental block training with intra-block parallel
optimization and blockwise model-update filtering*, 2016. A block is what ranks train between two rounds of
:mod:`~ringlet.strategies.average`. With w the parameters with which all ranks began it, a their average at its end, η
the block momentum and ζ the block rate::

    g  = a - w                          what the block has learned
    d' = η d + ζ g                      the filtered update, d that of the block before
    w' = w + d'                         classical block momentum
    w' = w + d' + η (d' - d)            Nesterov's: ranks go on from where momentum will carry them

Every rank begins the next block with w', which is also what is evaluated and saved. Averaging alone divides what a
block has learned by the number of ranks N; a momentum of 1 - 1 / N, the default, makes up for it in the long run. With
η = 0 and ζ = 1 it is averaging, to the bit. Running statistics and the optimizer's state are averaged, not filtered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np
from numpy.typing import DTypeLike

from ringlet.component import option, required
from ringlet.engines.contract import Floats
from ringlet.strategies.average import Averaging
from ringlet.strategies.contract import Job, StrategyConfig
from ringlet.strategies.ownership import OwnedRange, num_owned, owned_ranges

UPDATE = "block_update"
"""The name of d in checkpoints."""


def default_block_momentum(num_ranks: int) -> float:
    """1 - 1 / N."""
    return 1.0 - 1.0 / num_ranks


@final
class BmufConfig(StrategyConfig):
    """Averaging every so many steps whose updates have a momentum of their own."""

    name: ClassVar[str] = "bmuf"
    argument: ClassVar[str] = "every"
    every: int = required("steps of a block", unit="steps", ge=1, le=1_000_000)
    block_momentum: float | None = option(
        None, "share of the last block's update that is kept; default: 1 - 1 / workers", ge=0, lt=1
    )
    block_rate: float = option(1.0, "factor of what a block has learned", gt=0)
    classical: bool = option(False, "the classical form of the block momentum instead of Nesterov's")

    @property
    def steps_between_rounds(self) -> int:
        """Those of a block."""
        return self.every

    def build(self, job: Job) -> Averaging:
        """The strategy; every rank must call."""
        comm, layout = job.comm, job.layout
        owners = min(comm.local_sizes)
        owned = owned_ranges(layout.num_parameters, comm.local_rank, owners) if comm.local_rank < owners else ()
        momentum = default_block_momentum(comm.size) if self.block_momentum is None else self.block_momentum
        block_filter = BlockMomentum(
            num_owned(owned), layout.dtype, momentum=momentum, rate=self.block_rate, nesterov=not self.classical
        )
        return Averaging(job, every=self.every, block_filter=block_filter)


@final
class BlockMomentum:
    """The filter of the module's formulas, for the ``num_owned`` parameters that this rank owns."""

    def __init__(self, num_owned: int, dtype: DTypeLike, *, momentum: float, rate: float, nesterov: bool) -> None:
        self._momentum, self._rate, self._nesterov = momentum, rate, nesterov
        self._update: Floats = np.zeros(num_owned, dtype)
        self._start: Floats = np.zeros(num_owned, dtype)

    @property
    def state(self) -> Mapping[str, Floats]:
        """The last block's update."""
        return {UPDATE: self._update}

    def begin(self, owned: OwnedRange, parameters: Floats) -> None:
        """Keep what the block begins with."""
        self._start[owned.in_state.slice()] = parameters

    def apply(self, owned: OwnedRange, mean: Floats) -> None:
        """Filter; written as the mean and what is added to it, so that nothing is lost where nothing is added."""
        start, update = self._start[owned.in_state.slice()], self._update[owned.in_state.slice()]
        learned = mean - start
        kept = self._momentum * update
        mean += (self._rate - 1.0) * learned + kept
        new = kept + self._rate * learned
        if self._nesterov:
            mean += self._momentum * (new - update)
        update[:] = new
