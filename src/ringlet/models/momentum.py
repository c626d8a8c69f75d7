"""How fast batch normalisation's running statistics follow, where epochs are short.

With momentum m a step keeps the share m of the old statistics: after n steps m^n of those of the start are left.
The rule: after the first epoch at most a tenth of them is left, m = 0.1^(1 / steps), or the network's own momentum if
that is smaller. So the first validation already sees statistics of the data, and momenta for long epochs stay.
"""

from __future__ import annotations

from dataclasses import replace

from ringlet.models.spec import ModelSpec

LEFT = 0.1
"""What may be left of the first statistics after an epoch."""
LEAST = 0.5
"""Even for an epoch of one step: statistics of a single batch would be noise."""
SLOW = 0.9
"""Momenta up to this are the usual ones and stay as they are."""


def fitting_momentum(num_steps: int) -> float:
    """The largest momentum whose statistics have settled after so many steps."""
    return max(float(round(LEFT ** (1 / max(num_steps, 1)), 4)), LEAST)


def momentum_of(spec: ModelSpec) -> float | None:
    """The momentum of all batch norms; None if there are none, or several."""
    found = {node.attributes["momentum"] for node in spec.nodes if node.op == "batch_norm"}
    return float(found.pop()) if len(found) == 1 else None


def with_momentum(spec: ModelSpec, momentum: float) -> ModelSpec:
    """The same network with another momentum of its batch norms."""
    return ModelSpec(
        spec.name,
        tuple(
            replace(node, attributes={**node.attributes, "momentum": momentum}) if node.op == "batch_norm" else node
            for node in spec.nodes
        ),
    )
