"""An evaluation with its report: one pass that also counts, over units of the data that do not depend on the ranks."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data import Batch, BatchLoader, Piece, Source
from ringlet.data.source import SubsetSource
from ringlet.engines.contract import Replica, StepOutput
from ringlet.evaluation.views import View, averaged


@final
class UnitBatches:
    """All samples of a source in order, ``unit_size`` at a time; rank r of n takes units r, r + n, …

    A unit is the same whatever the number of ranks, and is counted as a shard of its own, so sums over units are too.
    """

    def __init__(self, source: Source, unit_size: int, comm: Communicator, **options: Any) -> None:
        self.num_units = -(-len(source) // unit_size)
        self._units = range(comm.rank, self.num_units, comm.size)
        parts = [np.arange(unit * unit_size, min((unit + 1) * unit_size, len(source))) for unit in self._units]
        self._indices = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        own = SubsetSource(source, self._indices)
        loader = BatchLoader(own, global_batch_size=unit_size, shuffle=False, **options) if parts else None
        self._loader = loader

    def epoch(self, epoch: int) -> Generator[Batch, None, None]:
        """The batches of this rank; close the generator to leave early."""
        if self._loader is None:
            return
        with closing(self._loader.epoch(epoch)) as batches:
            for unit, batch in zip(self._units, batches, strict=True):
                yield replace(batch, indices=self._indices[batch.indices], pieces=(Piece(unit, 0, len(batch)),))


def evaluate_views(
    replica: Replica,
    inputs: NDArray[Any],
    targets: NDArray[Any],
    views: Sequence[View],
    weights: NDArray[Any] | None = None,
) -> StepOutput:
    """Outputs averaged over views of the inputs; the loss is the mean of the losses of all views."""
    losses: list[float] = []

    def run(view: View, images: NDArray[Any]) -> NDArray[Any]:
        moved = view.of_images(targets) if targets.ndim >= 3 else targets
        output = replica.evaluate(images, np.ascontiguousarray(moved), weights)
        losses.append(output.loss_sum)
        return output.outputs

    outputs = averaged(views, inputs, run, (-2, -1))
    return StepOutput(math.fsum(losses) / len(losses), len(inputs), outputs)
