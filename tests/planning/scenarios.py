"""Scenarios for tests: a network of the zoo on a described machine."""

from __future__ import annotations

from typing import Any

from ringlet.engines.engine import ENGINES
from ringlet.models import zoo
from ringlet.planning.forecast import Scenario
from ringlet.planning.network import Link, Network
from ringlet.planning.speed import MachineSpeed, described_speed
from ringlet.planning.workload import describe_workload
from ringlet.strategies.contract import StrategyConfig
from ringlet.strategies.synchronous import SyncConfig

SLOW = Link(20e-6, 1.25e9)
FAST = Link(5e-6, 12e9)


def scenario(
    model: str = "simplecnn",
    *,
    pass_seconds: float = 0.01,
    local_batch_size: int = 32,
    variation: float = 0.0,
    machine: MachineSpeed | None = None,
    between: Link = SLOW,
    inside: Link = FAST,
    workers_per_machine: int = 1,
    num_optimizer_arrays: int = 2,
    engine: str = "native",
    strategy: StrategyConfig | None = None,
    overlap: str = "auto",
    compression: str = "none",
    **options: Any,
) -> Scenario:
    spec = zoo.create(model)
    return Scenario(
        spec=spec,
        workload=describe_workload(spec, "float32", num_optimizer_arrays),
        machine=machine or described_speed(pass_seconds, local_batch_size, variation),
        network=Network(between, inside, workers_per_machine),
        engine=ENGINES.create(engine),
        strategy=strategy or SyncConfig(overlap=overlap, compression=compression),
        **options,
    )


def measured(**options: Any) -> MachineSpeed:
    """A made-up measured machine of two cores: two workers at once slow each other down by a tenth."""
    values: dict[str, Any] = {
        "local_batch_size": 32,
        "passes": {1: [0.010] * 4, 2: [0.011] * 4},
        "cores": 2,
        "besides": {1: 0.001, 2: 0.002},
        "exchange": {1: [(4096, 1e-5), (1 << 20, 2e-3)], 2: [(4096, 5e-5), (1 << 20, 1e-3)]},
    }
    return MachineSpeed(**values | options)
