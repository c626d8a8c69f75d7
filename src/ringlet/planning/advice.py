"""How many workers to take, with which batch, and what keeps more of them from paying off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ringlet.planning.forecast import Forecast, Scenario

COMPUTE_BOUND = 0.9
"""From this efficiency on there is little to win but by computing faster."""
CAUSES = {
    "compute": "compute: more workers would help",
    "data": "data: batches are not read as fast as they are computed",
    "sharing": "a shared machine: workers at once slow each other down (caches, memory, clock, cores)",
    "stragglers": "stragglers: all wait for the slowest worker",
    "update": "adding up and updating inside the machine",
    "latency": "latency of the network: too many messages for too little work",
    "transfer": "bandwidth of the network: too many bytes for too little work",
    "memory": "memory: a worker does not fit",
    "samples": "samples: a step of more workers has fewer than one each, or needs more than an epoch has",
}
"""What may bind, by name."""


@dataclass(frozen=True)
class Goal:
    """What the batch is, and what counts as worth it."""

    local_batch_size: int | None = None
    """Fixed: the work of a step grows with the workers (weak scaling)."""
    global_batch_size: int | None = None
    """Fixed: the work of a step is shared by the workers (strong scaling)."""
    min_efficiency: float = 0.7
    memory_per_worker: int | None = None
    num_samples: int | None = None
    """Of an epoch."""

    @property
    def is_strong(self) -> bool:
        """Whether the global batch is fixed."""
        return self.global_batch_size is not None

    def local(self, num_workers: int) -> int:
        """Samples of a worker's pass."""
        if self.global_batch_size is not None:
            return max(1, -(-self.global_batch_size // num_workers))
        return self.local_batch_size or 1


@dataclass(frozen=True)
class Advice:
    """The recommended number of workers and its reason."""

    num_workers: int
    local_batch_size: int
    reason: str
    binds: str
    """A name of :data:`CAUSES`: what keeps more workers from paying off."""
    largest_efficient: int | None = None
    """The largest number that is efficient and fits, which may be smaller than the fastest."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"explanation": CAUSES[self.binds]}


def series(scenario: Scenario, goal: Goal, counts: Sequence[int]) -> list[Forecast]:
    """Forecasts with speed-up and efficiency against one worker, and epochs where the data are known."""
    one = _with_batch(scenario.forecast(1, goal.local(1)), goal)
    forecasts = [_with_batch(scenario.forecast(count, goal.local(count)), goal) for count in counts]
    return [_against(one, found, goal, _sureness(scenario, found.num_workers)) for found in forecasts]


def _sureness(scenario: Scenario, num_workers: int) -> tuple[float, float]:
    return scenario.machine.speed_up_range(scenario.network.on_a_machine(num_workers))


def _with_batch(found: Forecast, goal: Goal) -> Forecast:
    """A fixed global batch stays what it is where workers do not divide it."""
    return found if goal.global_batch_size is None else replace(found, global_batch_size=goal.global_batch_size)


def _against(one: Forecast, found: Forecast, goal: Goal, shares: tuple[float, float]) -> Forecast:
    speed_up = found.samples_per_second / one.samples_per_second
    low, high = (speed_up * share for share in shares)
    steps = None if goal.num_samples is None else -(-goal.num_samples // found.global_batch_size)
    return replace(
        found,
        speed_up=speed_up,
        speed_up_range=(low, max(speed_up, min(high, found.num_workers))),
        efficiency=speed_up / found.num_workers,
        steps_per_epoch=steps,
    )


def fits(found: Forecast, goal: Goal) -> bool:
    """Whether a worker's memory suffices."""
    return goal.memory_per_worker is None or found.memory.total <= goal.memory_per_worker


def has_samples(found: Forecast, goal: Goal) -> bool:
    """Whether there is a sample for every worker, and an epoch has at least one full step."""
    enough = goal.num_samples is None or found.global_batch_size <= goal.num_samples
    return enough and found.num_workers <= found.global_batch_size


def is_efficient(found: Forecast, goal: Goal) -> bool:
    """Whether a number of workers is worth it; a plan is not more exact than a per cent."""
    return round(found.efficiency, 2) >= goal.min_efficiency


def binding(found: Forecast, goal: Goal) -> str:
    """What a number of workers suffers from most, a name of :data:`CAUSES`."""
    if not fits(found, goal):
        return "memory"
    if not has_samples(found, goal):
        return "samples"
    parts = asdict(found.breakdown)
    if parts["data"] > parts["compute"]:
        return "data"
    losses = {name: seconds for name, seconds in parts.items() if name not in ("compute", "data")}
    worst = max(losses, key=lambda name: losses[name])
    return "compute" if found.efficiency >= COMPUTE_BOUND or losses[worst] == 0 else worst


def advise(forecasts: Sequence[Forecast], goal: Goal) -> Advice:
    """The fastest number for a fixed global batch; else the largest that is efficient. It must fit into memory."""
    fitting = [found for found in forecasts if fits(found, goal)]
    if not fitting:
        smallest = min(forecasts, key=lambda found: found.memory.total)
        return Advice(smallest.num_workers, smallest.local_batch_size, "none fits into memory", "memory")
    fitting = [found for found in fitting if has_samples(found, goal)] or fitting[:1]
    efficient = [found for found in fitting if is_efficient(found, goal)]
    if goal.is_strong:
        chosen = min(fitting, key=lambda found: (found.step_seconds, found.num_workers))
        reason = f"the fastest for a global batch of {goal.global_batch_size:,}"
    else:
        chosen = max(efficient or fitting[:1], key=lambda found: found.num_workers)
        reason = f"the largest number with an efficiency of at least {goal.min_efficiency:.0%}"
    beyond = [found for found in forecasts if found.num_workers > chosen.num_workers]
    binds = binding(beyond[0] if beyond else chosen, goal)
    largest = max((found.num_workers for found in efficient), default=None)
    return Advice(chosen.num_workers, chosen.local_batch_size, reason, binds, largest)


def better_batch(scenario: Scenario, goal: Goal, counts: Sequence[int], advice: Advice) -> Advice | None:
    """A larger local batch with which more workers are efficient, if messages bind and it fits into memory."""
    if goal.is_strong or goal.local_batch_size is None or advice.binds not in ("latency", "transfer", "update"):
        return None
    for factor in (2, 4, 8):
        larger = replace(goal, local_batch_size=factor * goal.local_batch_size)
        found = advise(series(scenario, larger, counts), larger)
        if found.binds == "memory" and found.reason.startswith("none"):
            return None
        if found.num_workers > advice.num_workers:
            return found
    return None
