"""How fast one machine computes, and adds up and updates in its memory: measured or described.

A measured machine has, for one worker and for several at once, the times of single passes (they vary, and workers at
once share caches, memory and clock), what a step takes besides (batches, metrics), and the time of an exchange and
update in shared memory by size.

Workers that meet wait for the slowest (*stragglers*): the expected maximum over workers of a time that varies is
simulated. Every worker draws its step times from the same sample, which was measured (or described: see
:func:`described_variation`), with a seeded generator. Workers that meet after every K-th step wait for the largest
*sum* of K draws, which varies less. The largest of many draws cannot exceed the largest measured one: rarer events
than the measurement saw are not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.bench.timing import estimate, ratio
from ringlet.planning.network import Cost

Points = Sequence[tuple[int, float]]
"""Bytes and seconds, by bytes."""
NUM_ROUNDS = 300
MAX_DRAWS = 1 << 20
"""Numbers drawn at once."""
DEFAULT_VARIATION = 0.02
"""Standard deviation over mean of the step times of a machine that is described: an assumption, for dedicated machines
with nothing else to do."""


@dataclass(frozen=True)
class MachineSpeed:
    """See the module. ``passes`` has the seconds of single passes by the number of workers that computed at once."""

    local_batch_size: int
    passes: Mapping[int, Sequence[float]]
    cores: int | None = None
    """None: every worker has a device of its own, and none slows down another."""
    other_batch: tuple[int, float] | None = None
    """Another local batch size and how many times the seconds of ``local_batch_size`` its pass took."""
    besides: Mapping[int, float] = field(default_factory=dict)
    """What a step takes besides its pass, without any exchange or update, by the number of workers at once: batches
    that are made by the same cores, metrics of the batch, the loop itself."""
    exchange: Mapping[int, Points] = field(default_factory=dict)
    """Times of adding up and updating in shared memory by the number of workers; of one worker: the update alone."""
    turns: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Mean time of a pass in each turn of the measurement, quiet or not, by the number of workers at once."""
    process_bytes: int | None = None
    memory_bytes: int | None = None
    threads: int | None = None

    @property
    def is_measured(self) -> bool:
        """Whether these are times of this machine."""
        return bool(self.exchange)

    @property
    def variation(self) -> float:
        """Standard deviation over mean of pass times, of the most workers at once."""
        times = self.passes[max(self.passes)]
        return pstdev(times) / fmean(times)

    @property
    def unrest(self) -> float:
        """How much the speed of the machine changed from turn to turn: half the range of a pass, over the median."""
        return max((estimate(means).spread for means in self.turns.values()), default=0.0)

    def speed_up_range(self, num_workers: int) -> tuple[float, float]:
        """The least and the largest speed-up that a turn would have given, as shares of that of all turns together.

        Workers at once are compared with one alone in the same turn: what slowed both cancels out.
        """
        count = min(self.turns, key=lambda count: (abs(count - num_workers), -count), default=1)
        if count == 1 or 1 not in self.turns:
            return 1.0, 1.0
        found = ratio(*({turn: [own] for turn, own in enumerate(self.turns[number])} for number in (1, count)))
        assert found is not None, "all numbers of workers take the same turns"
        return found.low / found.median, found.high / found.median

    def sample(self, num_workers: int) -> Sequence[float]:
        """Times of passes with the nearest measured number of workers at once, for simulations."""
        return self.passes[min(self.passes, key=lambda count: (abs(count - num_workers), -count))]

    def pass_seconds(self, num_workers: int, local_batch_size: int) -> float:
        """The mean time of a pass while so many workers of the machine compute."""
        means = {count: fmean(times) for count, times in self.passes.items()}
        return self._at_once(means, num_workers) * self._batch_factor(local_batch_size)

    def data_seconds(self, num_workers: int, local_batch_size: int) -> float:
        """What batches and metrics take in every step while so many workers train; it grows with the batch."""
        if not self.besides:
            return 0.0
        return self._at_once(self.besides, num_workers) * local_batch_size / self.local_batch_size

    def _at_once(self, means: Mapping[int, float], num_workers: int) -> float:
        """Between measured counts: straight lines. Beyond them: workers in excess of the cores take turns."""
        if self.cores is None:
            return means[max(means)]
        points = sorted(means.items())
        if num_workers <= points[-1][0]:
            return interpolate(points, num_workers)
        count, seconds = points[-1]
        if len(points) > 1:
            slope = max(0.0, (seconds - points[0][1]) / (count - points[0][0]))
            seconds += slope * (max(count, min(num_workers, self.cores)) - count)
        return seconds * max(1.0, num_workers / max(self.cores, count))

    def _batch_factor(self, local_batch_size: int) -> float:
        """A straight line over the samples of a pass through the two that were measured, or through zero."""
        wanted, known = local_batch_size, self.local_batch_size
        if self.other_batch is None:
            return wanted / known
        other, factor = self.other_batch
        per_sample = max(0.0, (factor - 1.0) / (other - known))
        fixed = max(0.0, 1.0 - per_sample * known)
        return fixed + (1.0 - fixed) * wanted / known

    def exchange_cost(self, num_bytes: int, num_workers: int) -> Cost:
        """Adding up and updating ``num_bytes`` of parameters in shared memory; the latency is that of no bytes."""
        nearest = min(self.exchange, key=lambda count: (abs(count - num_workers), -count))
        points = self.exchange[nearest]
        crowd = max(1.0, num_workers / max(self.cores or 1, nearest))
        latency = min(points[0][1], interpolate(points, num_bytes))
        return Cost(latency * crowd, (interpolate(points, num_bytes) - latency) * crowd)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "measured": self.is_measured,
            "local_batch_size": self.local_batch_size,
            "pass_seconds": {str(count): fmean(times) for count, times in self.passes.items()},
            "num_passes": {str(count): len(times) for count, times in self.passes.items()},
            "variation": self.variation,
            "unrest": self.unrest,
            "data_seconds": {str(count): seconds for count, seconds in self.besides.items()},
            "other_batch": self.other_batch,
            "exchange_seconds": {
                str(count): [list(point) for point in self.exchange[count]] for count in self.exchange
            },
            "cores": self.cores,
            "threads": self.threads,
            "process_bytes": self.process_bytes,
            "memory_bytes": self.memory_bytes,
        }


def described_speed(
    pass_seconds: float, local_batch_size: int, variation: float, memory_bytes: int | None = None
) -> MachineSpeed:
    """A machine that is not at hand: every worker has a device of its own, the time of a pass grows with the batch."""
    times = [pass_seconds * value for value in described_variation(variation).tolist()]
    return MachineSpeed(local_batch_size, {1: times}, memory_bytes=memory_bytes)


def interpolate(points: Points, place: float) -> float:
    """On straight lines between points; before the first: the first, beyond the last: in proportion to the last."""
    index = bisect_left([point[0] for point in points], place)
    if index == 0:
        return points[0][1]
    if index == len(points):
        last = points[-1]
        return last[1] * place / last[0]
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (place - left) / (right - left)


def slowdown(sample: Sequence[float], num_workers: int, *, every: int = 1, seed: int = 0) -> float:
    """Expected time of the slowest worker over the mean time; 1 for one worker or times that do not vary."""
    values = np.asarray(sample, np.float64)
    if num_workers == 1 or values.size < 2 or values.min() == values.max():
        return 1.0
    generator = np.random.default_rng([seed, num_workers, every])
    longest = np.zeros(NUM_ROUNDS)
    for first in range(0, num_workers, chunk := max(1, MAX_DRAWS // NUM_ROUNDS)):
        count = min(chunk, num_workers - first)
        sums = np.zeros((NUM_ROUNDS, count))
        for _ in range(every):
            sums += values[generator.integers(0, values.size, (NUM_ROUNDS, count))]
        np.maximum(longest, sums.max(axis=1), out=longest)
    return max(1.0, float(longest.mean() / (every * values.mean())))


def described_variation(variation: float, num_values: int = 4096) -> NDArray[np.float64]:
    """A sample of mean 1 whose standard deviation is ``variation``: log-normal, at evenly spaced probabilities."""
    normal = NormalDist()
    sigma = np.sqrt(np.log1p(variation**2))
    quantiles = [normal.inv_cdf((place + 0.5) / num_values) for place in range(num_values)]
    values = np.exp(sigma * np.array(quantiles))
    return np.asarray(values / values.mean(), np.float64)
