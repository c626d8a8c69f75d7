"""One training step: batch -> loss and gradients -> clip -> update. The whole method is on this screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import Batch
from ringlet.engines.contract import Replica, StepOutput
from ringlet.errors import DivergedError
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer, Segment, clip_by_global_norm, clip_by_value


@dataclass(frozen=True)
class Updater:
    """What turns gradients into an update: the optimizer, its state, its limits and its arithmetic."""

    optimizer: Optimizer
    state: Mapping[str, NDArray[Any]]
    segments: Sequence[Segment]
    kernels: Kernels
    clip_value: float | None = None
    clip_norm: float | None = None


def training_step(
    replica: Replica, updater: Updater, batch: Batch, *, step: int, learning_rate: float, seed: int
) -> StepOutput:
    """Train on one batch; ``step`` counts updates from 1 over the whole run.

    A loss or gradient that is not finite raises :class:`DivergedError` before any parameter changes.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found below, with its place
        output = replica.loss_and_gradients(batch.inputs, batch.targets, seed=seed, step=step)
    gradients = replica.gradients.flat
    _require_finite(output.loss_sum / output.count, gradients, batch, step)

    if updater.clip_value is not None:
        clip_by_value(gradients, updater.clip_value)
    if updater.clip_norm is not None:
        clip_by_global_norm(gradients, updater.clip_norm, kernels=updater.kernels)

    updater.optimizer.update(
        replica.parameters.flat,
        gradients,
        updater.state,
        step=step,
        learning_rate=learning_rate,
        segments=updater.segments,
        kernels=updater.kernels,
    )
    return output


def _require_finite(loss: float, gradients: NDArray[Any], batch: Batch, step: int) -> None:
    """The squared norm is one cheap pass; only if that overflows are the gradients looked at one by one."""
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    elif not math.isfinite(float(np.dot(gradients, gradients))) and not np.isfinite(gradients).all():
        what = f"the loss is {loss:.6g}, but its gradients are not finite"
    else:
        return
    raise DivergedError(
        f"training diverged in epoch {batch.epoch + 1}, step {batch.step_in_epoch + 1} (update {step}): {what}. "
        "The update was not applied. Lower the learning rate, clip gradients (--clip-norm 1) or check the data"
    )
