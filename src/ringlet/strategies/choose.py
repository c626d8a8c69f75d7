"""From the name of a strategy to the strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ringlet import plugins
from ringlet.comm.contract import Communicator
from ringlet.config.strategy_choice import StrategyChoice
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer
from ringlet.strategies import asynchronous
from ringlet.strategies.average import Averaging
from ringlet.strategies.bmuf import BlockMomentum, default_block_momentum
from ringlet.strategies.contract import Layout, Strategy
from ringlet.strategies.ownership import num_owned, owned_ranges
from ringlet.strategies.shared_model import SharedModel
from ringlet.strategies.soft_synchronous import group_size
from ringlet.strategies.synchronous import Options, Synchronous
from ringlet.timeline import NO_TIMELINE, Timeline

Factory: TypeAlias = Callable[..., Strategy]
"""A plugin: called with what stands behind the colon of its name, and then as :func:`make_strategy` is."""


def make_strategy(
    choice: StrategyChoice,
    comm: Communicator,
    layout: Layout,
    optimizer: Optimizer,
    kernels: Kernels,
    *,
    num_shards: int,
    options: Options,
    timeline: Timeline = NO_TIMELINE,
) -> Strategy:
    """The strategy of a run; every rank must call. ``options`` beyond clipping are for the synchronous one alone."""
    if choice.name == "sync":
        return Synchronous(comm, layout, optimizer, kernels, num_shards=num_shards, options=options, timeline=timeline)
    if choice.name == "plugin":
        return _plugged(choice.plugin)(
            choice.argument,
            comm,
            layout,
            optimizer,
            kernels,
            num_shards=num_shards,
            options=options,
            timeline=timeline,
        )
    if choice.name in ("async", "softsync"):
        return SharedModel(
            comm,
            layout,
            optimizer,
            kernels,
            group_size=asynchronous.GROUP_SIZE if choice.name == "async" else group_size(comm.size, choice.count),
            num_shards=num_shards,
            clip_value=options.clip_value,
            clip_norm=options.clip_norm,
            timeline=timeline,
        )
    return Averaging(
        comm,
        layout,
        optimizer,
        kernels,
        every=choice.count,
        num_shards=num_shards,
        clip_value=options.clip_value,
        clip_norm=options.clip_norm,
        block_filter=_block_momentum(choice, comm, layout) if choice.name == "bmuf" else None,
        timeline=timeline,
    )


def _plugged(name: str) -> Factory:
    found = plugins.find("strategies", name)
    if not callable(found):
        raise plugins.not_a("strategies", name, "a function that makes a strategy")
    factory: Factory = found
    return factory


def _block_momentum(choice: StrategyChoice, comm: Communicator, layout: Layout) -> BlockMomentum:
    owners = min(comm.local_sizes)
    owned = owned_ranges(layout.num_parameters, comm.local_rank, owners) if comm.local_rank < owners else ()
    momentum = default_block_momentum(comm.size) if choice.block_momentum is None else choice.block_momentum
    return BlockMomentum(
        num_owned(owned), layout.dtype, momentum=momentum, rate=choice.block_rate, nesterov=choice.nesterov
    )
