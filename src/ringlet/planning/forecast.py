"""The cost of a step for one number of workers, put together from its parts.

A synchronous step: the pass of the slowest worker, what remains visible of the exchange between machines, and adding up
and updating inside the machine. Workers that average every K steps update alone and share the cost of a round among K
steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

from ringlet.comm.compression import CompressionConfig, Exact, HalfPrecision, TopK
from ringlet.engines.engine import Engine
from ringlet.engines.native import Native
from ringlet.errors import UsageError
from ringlet.losses import Loss
from ringlet.models.spec import ModelSpec
from ringlet.planning.network import (
    NOTHING,
    Cost,
    Message,
    Network,
    between_machines,
    exposed_cost,
    gather,
    inside_machine,
    ring_bytes,
    total_cost,
)
from ringlet.planning.speed import MachineSpeed, slowdown
from ringlet.planning.workload import Workload, cut_buckets
from ringlet.strategies.contract import StrategyConfig
from ringlet.strategies.memory import PROCESS_BYTES, Memory, worker_memory
from ringlet.strategies.ownership import BLOCK, BUCKET_BLOCKS
from ringlet.strategies.synchronous import SyncConfig

INDEX_BYTES = 4
"""Top-k sends an index with every value."""


@dataclass(frozen=True)
class StepBreakdown:
    """Seconds of a step, by cause."""

    compute: float
    """The pass of a worker alone."""
    data: float
    """Batches and metrics, as far as the same cores make them."""
    sharing: float
    """What workers of one machine slow each other down by computing at once."""
    stragglers: float
    """Waiting for the slowest worker."""
    update: float
    """Adding up and updating inside a machine."""
    latency: float
    transfer: float
    """What remains visible of messages: their number, and their bytes."""

    @property
    def step(self) -> float:
        """All of it."""
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class Forecast:
    """What a number of workers would do."""

    num_workers: int
    num_machines: int
    local_batch_size: int
    global_batch_size: int
    breakdown: StepBreakdown
    memory: Memory
    network_bytes: float
    """What a worker sends to other machines (or devices) in a step, on average over steps."""
    shared_bytes: float
    """What a worker reads of others through shared memory in a step."""
    overlapped: bool
    speed_up: float = 1.0
    speed_up_range: tuple[float, float] = (1.0, 1.0)
    """What it would be by the worst and by the best turn of the measurement."""
    efficiency: float = 1.0
    steps_per_epoch: int | None = None

    @property
    def step_seconds(self) -> float:
        """Time of a step."""
        return self.breakdown.step

    @property
    def samples_per_second(self) -> float:
        """Of all workers."""
        return self.global_batch_size / self.step_seconds

    @property
    def epoch_seconds(self) -> float | None:
        """Training alone, without validation."""
        return None if self.steps_per_epoch is None else self.steps_per_epoch * self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "workers": self.num_workers,
            "machines": self.num_machines,
            "local_batch_size": self.local_batch_size,
            "global_batch_size": self.global_batch_size,
            "step_seconds": self.step_seconds,
            "epoch_seconds": self.epoch_seconds,
            "steps_per_epoch": self.steps_per_epoch,
            "samples_per_second": self.samples_per_second,
            "speed_up": self.speed_up,
            "speed_up_range": list(self.speed_up_range),
            "efficiency": self.efficiency,
            "parts": asdict(self.breakdown),
            "overlapped": self.overlapped,
            "memory": self.memory.to_dict(),
            "network_bytes": self.network_bytes,
            "shared_bytes": self.shared_bytes,
        }


@dataclass(frozen=True)
class Scenario:
    """Everything that a forecast depends on but the number of workers and the batch."""

    spec: ModelSpec
    workload: Workload
    machine: MachineSpeed
    network: Network
    algorithm: str = "hierarchical"
    strategy: StrategyConfig = field(default_factory=SyncConfig)
    engine: Engine = field(default_factory=Native)
    loss: str | Loss = "categorical_cross_entropy"
    bucket_bytes: int | None = None
    """Of one message; None: as Ringlet cuts them, a megabyte for each worker of a machine."""
    whole_tensors: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy.steps_between_rounds is None:
            raise UsageError(
                f"strategy = {self.strategy.name}: its workers never meet, so a step of all of them has no time to "
                "forecast. Plan sync, average:K or bmuf:K; `ringlet study` measures the others"
            )
        between_machines(self.algorithm, 0, 2 * self.network.workers_per_machine, self.network)

    @property
    def overlap(self) -> str:
        """Whether gradients are exchanged during the backward pass: on, off or auto."""
        return str(getattr(self.strategy, "overlap", "off"))

    @property
    def compression(self) -> CompressionConfig:
        """Of gradients between machines; what workers average is not compressed."""
        found: CompressionConfig = getattr(self.strategy, "compression", Exact())
        return found

    @cached_property
    def averaging(self) -> bool:
        """Whether workers meet every K steps only."""
        return not self.strategy.lockstep

    def forecast(self, num_workers: int, local_batch_size: int) -> Forecast:
        """One number of workers, each with so many samples; speed-up and epoch are filled in by ``series``."""
        messages = [] if num_workers == 1 else self._messages(num_workers)
        sharing = self.network.on_a_machine(num_workers)
        breakdown, overlapped = self._breakdown(num_workers, local_batch_size, messages)
        return Forecast(
            num_workers=num_workers,
            num_machines=self.network.machines(num_workers),
            local_batch_size=local_batch_size,
            global_batch_size=num_workers * local_batch_size,
            breakdown=breakdown,
            memory=self.memory(num_workers, local_batch_size),
            network_bytes=self._network_bytes(num_workers),
            shared_bytes=(sharing - 1) / sharing * self._round_bytes / self._every
            if self._in_memory(num_workers)
            else 0,
            overlapped=overlapped,
        )

    def memory(self, num_workers: int, local_batch_size: int) -> Memory:
        """Of one worker; what shares no memory has its own copy of everything."""
        return worker_memory(
            self.spec,
            dtype=self.workload.dtype,
            num_optimizer_arrays=self.workload.num_optimizer_arrays,
            local_batch_size=local_batch_size,
            workers_on_machine=self.network.on_a_machine(num_workers),
            engine=self.engine,
            loss=self.loss,
            averaging=self.averaging or not self._in_memory(num_workers),
            process_bytes=self.machine.process_bytes or PROCESS_BYTES,
        )

    def _breakdown(
        self, num_workers: int, local_batch_size: int, messages: list[Message]
    ) -> tuple[StepBreakdown, bool]:
        machine, together = self.machine, self.network.on_a_machine(num_workers)
        alone = machine.pass_seconds(1, local_batch_size)
        shared = max(alone, machine.pass_seconds(together, local_batch_size))
        factor = slowdown(machine.sample(together), num_workers, every=self._every, seed=self.seed)
        visible, overlapped = self._visible(messages, shared * factor)
        breakdown = StepBreakdown(
            compute=alone,
            data=machine.data_seconds(together, local_batch_size),
            sharing=shared - alone,
            stragglers=shared * (factor - 1.0),
            update=self._update_seconds(num_workers),
            latency=visible.latency / self._every,
            transfer=visible.transfer / self._every,
        )
        return breakdown, overlapped

    def _visible(self, messages: list[Message], pass_seconds: float) -> tuple[Cost, bool]:
        """What a step waits for, and whether the exchange hides in the pass."""
        after = total_cost(messages)
        if self.averaging or self.overlap == "off" or not messages:
            return after, False
        during = exposed_cost(messages, pass_seconds)
        return (during, True) if self.overlap == "on" or during.seconds < after.seconds else (after, False)

    def _update_seconds(self, num_workers: int) -> float:
        """Adding up and updating in the memory of a measured machine; a described pass includes its update."""
        machine, together = self.machine, self.network.on_a_machine(num_workers)
        if not machine.is_measured:
            return 0.0
        own = machine.exchange_cost(self.workload.parameter_bytes, 1).seconds
        if self.averaging:
            of_a_round = machine.exchange_cost(self._round_bytes, together).seconds if together > 1 else 0.0
            return own + of_a_round / self._every
        if not self._in_memory(num_workers):
            return own
        return machine.exchange_cost(self.workload.parameter_bytes + self.workload.state_bytes, together).seconds

    def _in_memory(self, num_workers: int) -> bool:
        """Whether workers of a machine add up in shared memory, as Ringlet's do."""
        flat = self.algorithm != "hierarchical" and self.network.machines(num_workers) > 1
        return self.machine.is_measured and not flat

    @property
    def _every(self) -> int:
        return self.strategy.steps_between_rounds or 1

    @property
    def _round_bytes(self) -> int:
        """What one exchange is about: gradients and statistics, or all that workers average."""
        work = self.workload
        return work.parameter_bytes + work.state_bytes + (work.optimizer_bytes if self.averaging else 0)

    def _messages(self, num_workers: int) -> list[Message]:
        """The messages of one exchange in the order in which they leave."""
        work, size = self.workload, self._bucket_elements(num_workers)
        if self.averaging:
            whole, rest = divmod(self._round_bytes, size * work.item_size)
            full = Message(1.0, self._cost(size * work.item_size, num_workers))
            return [full] * whole + ([Message(1.0, self._cost(rest, num_workers))] if rest else [])
        messages = [
            Message(bucket.ready, self._cost(self._sent(bucket.size), num_workers))
            for bucket in cut_buckets(work, size, whole_tensors=self.whole_tensors)
        ]
        if work.num_state:
            messages.append(Message(1.0, self._cost(work.state_bytes, num_workers, compressed=False)))
        return messages

    def _bucket_elements(self, num_workers: int) -> int:
        if self.bucket_bytes is not None:
            return max(1, self.bucket_bytes // self.workload.item_size)
        return BLOCK * BUCKET_BLOCKS * self.network.on_a_machine(num_workers)

    def _cost(self, num_bytes: float, num_workers: int, *, compressed: bool = True) -> Cost:
        """Of one message, over links; what happens in the memory of a measured machine is no message."""
        inside = NOTHING
        if not self.machine.is_measured:
            inside = inside_machine(self.algorithm, num_bytes, num_workers, self.network)
        if compressed and isinstance(self._method, TopK):
            members = num_workers if self.algorithm == "ring" else self.network.machines(num_workers)
            return inside + gather(num_bytes, members, self.network.between) if members > 1 else inside
        return inside + between_machines(self.algorithm, num_bytes, num_workers, self.network)

    @cached_property
    def _method(self) -> object:
        return self.compression.build()

    def _sent(self, num_elements: int) -> int:
        """Bytes that so many gradients become."""
        if isinstance(self._method, HalfPrecision):
            return 2 * num_elements
        if isinstance(self._method, TopK):
            return ceil(self._method.ratio * num_elements) * (INDEX_BYTES + self.workload.item_size)
        return num_elements * self.workload.item_size

    def _network_bytes(self, num_workers: int) -> float:
        """On average over steps and workers."""
        machines, together = self.network.machines(num_workers), self.network.on_a_machine(num_workers)
        work = self.workload
        sent = self._round_bytes if self.averaging else self._sent(work.num_parameters) + work.state_bytes
        flat = self.algorithm == "ring" and machines > 1
        members, part = (num_workers, 1) if flat else (machines, together)
        if isinstance(self._method, TopK):
            return (members - 1) * sent / part
        between = ring_bytes(sent, members) / part
        inside = 0.0 if self.machine.is_measured or flat else ring_bytes(sent, together)
        return (between + inside) / self._every
