"""Which parts of a network learn, when, and at which rate: all of it a function of the step, so nothing to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringlet.config import RunConfig
from ringlet.errors import ConfigError
from ringlet.models.module_spec import Network
from ringlet.models.parts import matching
from ringlet.models.spec import ModelSpec
from ringlet.optim import NEVER, Pace, Segment, segments_of


@dataclass(frozen=True)
class Learning:
    """By default all parameters learn alike from the first step on."""

    frozen: frozenset[str] = frozenset()
    """Parameters that rest until ``unfreeze_at``."""
    unfreeze_at: int | None = None
    """The epoch (from 1) from which on all learn; None: those stay frozen."""
    paces: Mapping[str, Pace] = field(default_factory=dict)
    """Parameters and running statistics that do not learn as usual."""

    def frozen_in(self, epoch: int) -> frozenset[str]:
        """What rests in an epoch, counted from 1."""
        return frozenset() if self.unfreeze_at is not None and epoch >= self.unfreeze_at else self.frozen

    def segments(self, spec: Network) -> tuple[Segment, ...]:
        """Of the parameters."""
        return segments_of(spec.parameters, self.paces)

    def state_segments(self, spec: Network) -> tuple[Segment, ...]:
        """Of running statistics that do not learn as usual."""
        return tuple(own for own in segments_of(spec.state, self.paces) if own.name in self.paces)

    def remarks(self, spec: Network) -> list[str]:
        """What rests, in words."""
        if not self.frozen:
            return []
        num_frozen = sum(info.size for info in spec.parameters if info.name in self.frozen)
        until = "" if self.unfreeze_at is None else f" until epoch {self.unfreeze_at}"
        return [f"frozen{until}: {num_frozen:,} of {spec.num_parameters:,} parameters"]


def make_learning(config: RunConfig, spec: Network, num_steps_per_epoch: int) -> Learning:
    """What the configuration says about parts of this network."""
    chosen = config.transfer
    if not isinstance(spec, ModelSpec):
        if chosen.freeze or chosen.factors:
            raise ConfigError(
                "freeze and rates choose nodes of Ringlet's own networks: freeze parameters of a module by "
                "requires_grad_(False), layers of a Keras model by trainable = False"
            )
        return Learning()
    frozen = matching(spec, chosen.freeze, "freeze")
    first = NEVER if chosen.unfreeze_at is None else (chosen.unfreeze_at - 1) * num_steps_per_epoch + 1
    rates: dict[str, float] = {}
    for pattern, factor in chosen.factors:
        rates |= dict.fromkeys(matching(spec, [pattern], "rates"), factor)
    paces = {name: Pace(rates.get(name, 1.0), first if name in frozen else 1) for name in rates.keys() | frozen}
    nodes = spec.frozen_nodes(frozen)
    paces |= {info.name: Pace(1.0, first) for info in spec.state if info.node in nodes}
    return Learning(frozen, chosen.unfreeze_at, paces)
