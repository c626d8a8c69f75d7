"""What an allreduce costs in the α-β model, by algorithm.

With W workers, n bytes each, latency α and payload bandwidth β per worker and direction:

- ring (Patarasuk and Yuan 2009): 2(W - 1) α + 2 (W - 1)/W n/β; each worker sends 2 (W - 1)/W n bytes;
- recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005): with the largest power of two
  P ≤ W, 2 log2(P) α + 2 (P - 1)/P n/β, and 2 (α + n/β) more if W is not a power of two;
- two binary trees, each for half of the data (Sanders, Speck and Träff 2009): 2 ⌈log2 W⌉ α + 2 n/β;
- hierarchical: inside every machine first, then between machines, where the workers of a machine each exchange their
  part through its one card: the cheaper of ring and halving over the machines for n bytes.

In a flat ring the workers of a machine are neighbours, so a card carries the ring's traffic once; every hop of the ring
waits for the slowest, which is one between machines. Flat halving exchanges its largest halves inside machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2

from ringlet.errors import UnknownNameError
from ringlet.planning.network import Link, Network

ALGORITHMS = ("hierarchical", "ring", "halving", "tree")


@dataclass(frozen=True)
class Cost:
    """Seconds of an exchange, by cause."""

    latency: float = 0.0
    transfer: float = 0.0

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.latency + self.transfer

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.latency + other.latency, self.transfer + other.transfer)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.latency * factor, self.transfer * factor)


NOTHING = Cost()


def ring_bytes(num_bytes: float, num_workers: int) -> float:
    """What each worker of a ring sends (and receives)."""
    return 2 * (num_workers - 1) / num_workers * num_bytes


def ring(num_bytes: float, num_workers: int, link: Link) -> Cost:
    """A ring over ``num_workers``."""
    return Cost(2 * (num_workers - 1) * link.latency, ring_bytes(num_bytes, num_workers) / link.bandwidth)


def halving(num_bytes: float, num_workers: int, link: Link) -> Cost:
    """Recursive halving, then doubling; workers beyond a power of two hand theirs to another and get the result."""
    rounds = num_workers.bit_length() - 1
    power = 1 << rounds
    cost = Cost(2 * rounds * link.latency, 2 * (power - 1) / power * num_bytes / link.bandwidth)
    return cost if power == num_workers else cost + Cost(2 * link.latency, 2 * num_bytes / link.bandwidth)


def tree(num_bytes: float, num_workers: int, link: Link) -> Cost:
    """Two binary trees, pipelined: up and down."""
    if num_workers == 1:
        return NOTHING
    return Cost(2 * ceil(log2(num_workers)) * link.latency, 2 * num_bytes / link.bandwidth)


def gather(num_bytes: float, num_workers: int, link: Link) -> Cost:
    """An allgather of ``num_bytes`` from each, in a ring: what top-k compression does."""
    return Cost((num_workers - 1) * link.latency, (num_workers - 1) * num_bytes / link.bandwidth)


def cheapest(num_bytes: float, num_workers: int, link: Link) -> Cost:
    """Ring or halving, as MPI libraries choose by size."""
    ways = ring(num_bytes, num_workers, link), halving(num_bytes, num_workers, link)
    return min(ways, key=lambda cost: cost.seconds)


def between_machines(algorithm: str, num_bytes: float, num_workers: int, network: Network) -> Cost:
    """The part of an exchange that crosses machines; nothing with one machine.

    For a flat ring that is all of it; for the others see :func:`inside_machine`.
    """
    machines = network.machines(num_workers)
    if machines == 1:
        return NOTHING
    if algorithm == "ring":
        return ring(num_bytes, num_workers, network.between)
    ways: dict[str, Callable[[float, int, Link], Cost]] = {"hierarchical": cheapest, "halving": halving, "tree": tree}
    if algorithm not in ways:
        raise UnknownNameError("algorithm", algorithm, ALGORITHMS)
    return ways[algorithm](num_bytes, machines, network.between)


def inside_machine(algorithm: str, num_bytes: float, num_workers: int, network: Network) -> Cost:
    """The part that stays inside a machine, over its described link."""
    workers = network.on_a_machine(num_workers)
    if algorithm == "ring" and network.machines(num_workers) > 1:
        return NOTHING
    ways = {"hierarchical": ring, "ring": ring, "halving": halving, "tree": tree}
    if algorithm not in ways:
        raise UnknownNameError("algorithm", algorithm, ALGORITHMS)
    return ways[algorithm](num_bytes, workers, network.inside)
