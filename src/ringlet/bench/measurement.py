"""Times of collectives. Contenders take turns, so that a noisy moment meets all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ringlet.bench.contenders import Contender, values_of
from ringlet.bench.timing import Variant, take_turns
from ringlet.comm.collective import COLLECTIVES
from ringlet.comm.contract import Communicator

ROUND_SECONDS = 0.02
MAX_CALLS = 500


def known_collectives() -> list[str]:
    """The names of all collectives that can be timed, those of other packages included."""
    return [name for name, collective in COLLECTIVES.items() if collective.example is not None]


def takes_data(collective: str) -> bool:
    """Whether its time depends on a size."""
    example = COLLECTIVES[collective].example
    return example is not None and bool(example(values_of(4, 1), 1))


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
    """Time every contender that has ``collective``; every rank must call and gets the same times."""
    calls = {contender.name: contender.prepare(collective, num_bytes) for contender in contenders}
    variants = [Variant(name, call) for name, call in calls.items() if call is not None]
    take_turns(variants, num_rounds, comm=comm, round_seconds=ROUND_SECONDS, max_calls=MAX_CALLS)
    return [Measurement(variant.name, collective, num_bytes, variant.median) for variant in variants]
