"""Times of collectives: contenders take turns, so that a noisy moment meets all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ringlet.bench.contenders import Call, Contender
from ringlet.comm.contract import Communicator, Op

ROUND_SECONDS = 0.02
MAX_CALLS = 500


@dataclass(frozen=True)
class Measurement:
    """The time of one collective call: that of the slowest rank, the median over rounds."""

    contender: str
    collective: str
    num_bytes: int
    seconds: float

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.num_bytes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"bandwidth": self.bandwidth}


def measure(
    comm: Communicator, contenders: Sequence[Contender], collective: str, num_bytes: int, num_rounds: int
) -> list[Measurement]:
    """Time every contender that has ``collective``; every rank must call and gets the same figures."""
    calls = {contender.name: contender.prepare(collective, num_bytes) for contender in contenders}
    present = {name: call for name, call in calls.items() if call is not None}
    counts = {name: _num_calls(comm, call) for name, call in present.items()}
    times: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(num_rounds):
        for name, call in present.items():
            times[name].append(_round(comm, call, counts[name]))
    return [Measurement(name, collective, num_bytes, median(times[name])) for name in present]


def _num_calls(comm: Communicator, call: Call) -> int:
    """So many calls as fill a round; all ranks agree on the number."""
    call()
    seconds = _round(comm, call, 3)
    return max(1, min(MAX_CALLS, int(ROUND_SECONDS / max(seconds, 1e-9))))


def _round(comm: Communicator, call: Call, num_calls: int) -> float:
    """Seconds per call on the slowest rank."""
    comm.barrier()
    start = perf_counter()
    for _ in range(num_calls):
        call()
    seconds = (perf_counter() - start) / num_calls
    return float(comm.allreduce(np.array([seconds]), Op.MAX)[0])
