"""Whether running statistics have caught up with those of batches: if not, validation says little.

A step makes ``m * old + (1 - m) * batch`` of a running statistic, so two of them, before and after a step, tell what
the batch's was, for any engine and without another pass.
"""

from __future__ import annotations

from typing import final

import numpy as np

from ringlet.engines.contract import FlatTensors, Floats
from ringlet.models.spec import ModelSpec

FAR = 1.25
"""Running statistics lag where in half of all batch norms the variances differ from the batch's by this factor …"""
FAR_MEAN = 0.2
"""… and the means by so many standard deviations. A U-Net's settle well below both, and start well above."""


@final
class StatisticsWatch:
    """Compares the running statistics of a replica with those of the last batch of an epoch; speaks once."""

    def __init__(self, spec: ModelSpec, state: FlatTensors) -> None:
        momenta = {node.name: node.attributes["momentum"] for node in spec.nodes if node.op == "batch_norm"}
        self._momenta = {name: float(value) for name, value in momenta.items() if value > 0}
        self._state = state
        self._before: Floats | None = None
        self._has_spoken = False

    def before_step(self) -> None:
        """The last step of an epoch is about to begin."""
        if self._momenta and not self._has_spoken:
            self._before = self._state.flat.copy()

    def remark(self) -> str:
        """After that step: what there is to say, or nothing."""
        if self._before is None:
            return ""
        means, factors = self._distances(self._before)
        self._before = None
        if means <= FAR_MEAN or factors <= FAR:
            return ""
        self._has_spoken = True
        return (
            "the running statistics of batch norm lag behind those of the batches: validation is not yet meaningful. "
            "More steps or a smaller momentum help"
        )

    def _distances(self, before: Floats) -> tuple[float, float]:
        """Medians over batch norms, and over their channels: distance of means in deviations, factor of variances."""
        old = _views_like(self._state, before)
        means, factors = [], []
        for node, momentum in self._momenta.items():
            batch = {}
            for role in ("running_mean", "running_var"):
                name = f"{node}.{role}"
                new = self._state.views[name].astype(np.float64)
                batch[role] = (new - momentum * old[name]) / (1 - momentum)
            if np.array_equal(self._state.views[f"{node}.running_var"], old[f"{node}.running_var"]):
                continue  # it is frozen
            variance = np.maximum(batch["running_var"], 1e-12)
            running = np.maximum(self._state.views[f"{node}.running_var"].astype(np.float64), 1e-12)
            factors.append(np.median(np.maximum(variance / running, running / variance)))
            distance = np.abs(batch["running_mean"] - self._state.views[f"{node}.running_mean"])
            means.append(np.median(distance / np.sqrt(np.maximum(variance, running))))
        return (float(np.median(means)), float(np.median(factors))) if means else (0.0, 1.0)


def _views_like(state: FlatTensors, flat: Floats) -> dict[str, Floats]:
    views, start = {}, 0
    for name, view in state.views.items():
        views[name] = flat[start : start + view.size].reshape(view.shape)
        start += view.size
    return views
