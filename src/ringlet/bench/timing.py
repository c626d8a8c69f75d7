"""One timer for everything that is compared: variants take turns, so that a noisy moment meets all of them.

A round repeats the call of one variant for a while. Rounds of all variants alternate, every other time in reverse
order, and the time of a variant is the median over its rounds. With a communicator all ranks take part: they meet
before each round, and the slowest of them counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from ringlet.comm.contract import Communicator, Op
from ringlet.comm.single import SingleCommunicator

ROUND_SECONDS = 0.25
"""A round repeats its call for about this long."""
Call = Callable[[], Any]
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Estimate:
    """A value with the range in which repeats lay; ``low == high == median`` if there was one value alone."""

    median: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Half the range, as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0

    def to_dict(self) -> dict[str, float | int]:
        """Plain values, for JSON."""
        return {"median": self.median, "low": self.low, "high": self.high, "count": self.count}


def estimate(values: Sequence[float]) -> Estimate:
    """Median and range of at least one value."""
    return Estimate(statistics.median(values), min(values), max(values), len(values))


def ratio(numerators: Mapping[int, Sequence[float]], denominators: Mapping[int, Sequence[float]]) -> Estimate | None:
    """How many times the denominator the numerator is; both are values by repeat.

    Runs of one repeat were made close to each other, so medians are divided repeat by repeat: what slowed the machine
    for a while cancels out. With one repeat alone the range is that of its own values, each against each. None if no
    repeat has both.
    """
    common = sorted(numerators.keys() & denominators.keys())
    if not common:
        return None
    paired = [statistics.median(numerators[repeat]) / statistics.median(denominators[repeat]) for repeat in common]
    if len(common) > 1:
        return estimate(paired)
    above, below = numerators[common[0]], denominators[common[0]]
    return Estimate(paired[0], min(above) / max(below), max(above) / min(below), min(len(above), len(below)))


@dataclass
class Variant:
    """Something to time: ``call`` is called again and again."""

    name: str
    call: Call
    enter: Call | None = None
    """Called once before each round; not timed."""
    prepare: Call | None = None
    """Called before each call; not timed. Ranks meet after it."""
    measures_itself: bool = False
    """Whether a round is one call, which returns its seconds."""
    seconds: list[float] = field(default_factory=list)
    """Seconds per call, one entry per round."""

    @property
    def median(self) -> float:
        """The time of this variant."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The least disturbed round."""
        return min(self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"name": self.name, **estimate(self.seconds).to_dict()}


def take_turns(
    variants: Sequence[Variant],
    num_rounds: int,
    *,
    comm: Communicator | None = None,
    round_seconds: float = ROUND_SECONDS,
    max_calls: int = 1 << 30,
) -> None:
    """Let all variants take turns: afterwards each has ``num_rounds`` timings. Every rank must call."""
    group = SingleCommunicator() if comm is None else comm
    entries = [(variant, _num_calls(variant, group, round_seconds, max_calls)) for variant in variants]
    for variant, num_calls in turns(entries, num_rounds):
        if variant.enter is not None:
            variant.enter()
        if variant.measures_itself:
            variant.seconds.append(_slowest(group, float(variant.call())))
            continue
        if num_calls > 1 and variant.prepare is None:
            variant.call()  # brings its data back into the caches
        variant.seconds.append(time_calls(variant.call, num_calls, comm=group, prepare=variant.prepare))


def turns(entries: Sequence[Entry], num_rounds: int) -> Iterator[Entry]:
    """Every entry once in each round, every other round in reverse order."""
    for number in range(num_rounds):
        yield from entries if number % 2 == 0 else reversed(entries)


def time_calls(call: Call, num_calls: int, *, comm: Communicator, prepare: Call | None = None) -> float:
    """Mean seconds of a call on the slowest rank; every rank must call."""
    comm.barrier()
    start, outside = perf_counter(), 0.0
    for _ in range(num_calls):
        if prepare is not None:
            begin = perf_counter()
            prepare()
            comm.barrier()
            outside += perf_counter() - begin
        call()
    return _slowest(comm, (perf_counter() - start - outside) / num_calls)


def fastest(variants: Sequence[Variant]) -> Variant:
    """The one with the least median."""
    return min(variants, key=lambda variant: variant.median)


def _num_calls(variant: Variant, comm: Communicator, round_seconds: float, max_calls: int) -> int:
    """Warm up; as many calls as fill a round, found with ever more of them. All ranks get the same number."""
    if variant.measures_itself:
        return 1
    if variant.enter is not None:
        variant.enter()
    variant_seconds = partial(time_calls, variant.call, comm=comm, prepare=variant.prepare)
    variant_seconds(1)
    number, seconds = 1, variant_seconds(1)
    while number * seconds < round_seconds / 5 and number < max_calls:
        number = min(5 * number, max_calls)
        seconds = variant_seconds(number)
    return max(1, min(max_calls, round(round_seconds / max(seconds, 1e-9))))


def _slowest(comm: Communicator, seconds: float) -> float:
    return float(comm.allreduce(np.array([seconds]), Op.MAX)[0])
