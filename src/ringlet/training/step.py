"""One training step: batch -> loss and gradients of every shard -> agree -> update. The whole method on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ringlet.data import Batch
from ringlet.engines.contract import Replica
from ringlet.errors import DivergedError
from ringlet.guards import faults
from ringlet.metrics import Measure
from ringlet.strategies.contract import Strategy
from ringlet.timeline import NO_TIMELINE, Timeline
from ringlet.training.divergence import explain_divergence, find_problem
from ringlet.training.metric_sums import Meter, ShardSums


@dataclass(frozen=True)
class StepResult:
    """What one step gave: over all ranks in lockstep, otherwise on this rank."""

    metrics: Meter
    interrupted: bool
    """Whether any of these ranks was asked to stop."""
    problem: str | None
    """What was not finite, if the update was skipped for it."""


def training_step(
    replica: Replica,
    strategy: Strategy,
    batch: Batch,
    *,
    step: int,
    learning_rate: float,
    seed: int,
    metrics: Sequence[Measure] = (),
    is_interrupted: Callable[[], bool] = bool,
    skip_bad: bool = False,
    timeline: Timeline = NO_TIMELINE,
) -> StepResult:
    """Train on one global batch, of which this rank has its shards; ``step`` counts updates from 1 over the whole run.

    Every rank must call. A loss, gradient or running statistic that is not finite on any rank, before or after they
    are added up, raises :class:`DivergedError` on all of them, and nothing has changed; with ``skip_bad`` the step
    changes nothing and training continues. Ranks that are not in lockstep never raise here, because the others would
    wait for them: the step changes nothing on this rank. ``is_interrupted`` says whether this rank was asked to stop.
    """
    strategy.begin()
    sums = ShardSums(strategy.num_shards, metrics)
    rank = strategy.comm.rank
    for shard, start, stop in batch.pieces:
        faults.reach("forward", rank, step)
        targets = batch.targets[start:stop]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found below, with its place
            output = replica.loss_and_gradients(
                batch.inputs[start:stop],
                targets,
                weights=None if batch.weights is None else batch.weights[start:stop],
                scale=strategy.scale(len(batch), batch.num_global),
                seed=seed,
                step=step,
                shard=shard,
                timeline=timeline,
                on_ready=strategy.on_ready,
            )
            timeline.mark("metrics")
            faults.reach("backward", rank, step, replica.gradients.flat)
            sums.put(shard, output, targets)
            sums.flag(shard, interrupted=is_interrupted(), replica=replica)
        strategy.add(shard, output.count)

    faults.reach("reduce", rank, step)
    strategy.agree(sums.rows)
    problem = find_problem(sums, strategy)
    if problem is None:
        faults.reach("update", rank, step, strategy.parameters)
        problem = strategy.update(step=step, learning_rate=learning_rate, num_samples=batch.num_global)
    else:
        strategy.skip()
    if problem is not None and strategy.lockstep and not skip_bad:
        raise DivergedError(explain_divergence(batch, step, problem))
    return StepResult(sums.meter(), sums.interrupted, problem)
