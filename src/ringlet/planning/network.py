"""What messages between workers cost: links between machines and inside one, collectives over them, and how much of an
exchange remains visible after the pass that it hides in.

A message of n bytes takes ``latency + n / bandwidth`` (the α-β model). The bandwidth is what payload gets: the line
rate times the *efficiency* of the protocol, the share of a line that is not headers and gaps. Reasons for the presets:

- TCP over Ethernet frames of 1,500 bytes carries 1,448 of 1,538 bytes on the wire: 94 %.
- RoCE (version 2) with its usual packets of 1,024 bytes has 82 bytes of headers, checksums and gaps for each: 92.6 %.
- InfiniBand: 12 of 12.5 GB/s are what NCCL's developers call the peak of a 100 Gb/s card: 96 %.
- Latencies are those of one message as an MPI program sees it: tens of microseconds through the kernel's TCP, about two
  with RDMA. They differ from site to site: give your own (``--latency``) if you know them.

An allreduce with W workers, n bytes each, latency α and payload bandwidth β per worker and direction takes, by
algorithm:

- ring (Patarasuk and Yuan 2009): 2(W - 1) α + 2 (W - 1)/W n/β; each worker sends 2 (W - 1)/W n bytes;
- recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005): with the largest power of two
  P ≤ W, 2 log2(P) α + 2 (P - 1)/P n/β, and 2 (α + n/β) more if W is not a power of two;
- two binary trees, each for half of the data (Sanders, Speck and Träff 2009): 2 ⌈log2 W⌉ α + 2 n/β;
- hierarchical: inside every machine first, then between machines, where the workers of a machine each exchange their
  part through its one card: the cheaper of ring and halving over the machines for n bytes.

In a flat ring the workers of a machine are neighbours, so a card carries the ring's traffic once; every hop of the ring
waits for the slowest, which is one between machines. Flat halving exchanges its largest halves inside machines.

Messages leave one after the other, each as soon as its gradients are final and the one before has arrived:
``end[k] = max(end[k - 1], ready[k]) + cost[k]``. What lies after the end of the pass is *exposed*: the step waits
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

from ringlet.bench.quantities import parse_rate, parse_seconds
from ringlet.errors import ConfigError, UnknownNameError, UsageError

ALGORITHMS = ("hierarchical", "ring", "halving", "tree")
TCP_EFFICIENCY = 1448 / 1538
ROCE_EFFICIENCY = 1024 / 1106
INFINIBAND_EFFICIENCY = 12 / 12.5


@dataclass(frozen=True)
class Link:
    """What a message costs: seconds before its first byte, and bytes per second of the line of which payload gets
    ``efficiency``."""

    latency: float
    line_rate: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        if self.latency < 0 or self.line_rate <= 0 or not 0 < self.efficiency <= 1:
            raise UsageError(
                f"a link with latency {self.latency:g} s, bandwidth {self.line_rate:g} B/s and efficiency "
                f"{self.efficiency:g} cannot be: expected at least 0, more than 0, and more than 0 up to 1"
            )

    @property
    def bandwidth(self) -> float:
        """Payload bytes per second."""
        return self.line_rate * self.efficiency


PRESETS: dict[str, Link] = {
    "1gbe": Link(50e-6, 1e9 / 8, TCP_EFFICIENCY),
    "10gbe": Link(25e-6, 10e9 / 8, TCP_EFFICIENCY),
    "25gbe": Link(20e-6, 25e9 / 8, TCP_EFFICIENCY),
    "100gbe": Link(15e-6, 100e9 / 8, TCP_EFFICIENCY),
    "25gbe-roce": Link(3e-6, 25e9 / 8, ROCE_EFFICIENCY),
    "100gbe-roce": Link(3e-6, 100e9 / 8, ROCE_EFFICIENCY),
    "infiniband-edr": Link(2e-6, 100e9 / 8, INFINIBAND_EFFICIENCY),
    "infiniband-hdr": Link(2e-6, 200e9 / 8, INFINIBAND_EFFICIENCY),
    "infiniband-ndr": Link(2e-6, 400e9 / 8, INFINIBAND_EFFICIENCY),
}
"""Links between machines, by name."""

DEFAULT_NETWORK = "10gbe"
PCI_EXPRESS = Link(6e-6, 16e9, 0.75)
"""Inside a machine that is described and not measured, unless told otherwise: devices on PCI Express 3 with 16 lanes,
of which 12 of 16 GB/s arrive."""


@dataclass(frozen=True)
class Network:
    """All links: ``between`` machines (one card each), ``inside`` a machine, and how many workers a machine has."""

    between: Link
    inside: Link
    workers_per_machine: int

    def __post_init__(self) -> None:
        if self.workers_per_machine < 1:
            raise UsageError(f"workers_per_machine = {self.workers_per_machine}: expected at least 1")

    def machines(self, num_workers: int) -> int:
        """How many machines so many workers fill."""
        return -(-num_workers // self.workers_per_machine)

    def on_a_machine(self, num_workers: int) -> int:
        """How many of so many workers share a (full) machine."""
        return min(num_workers, self.workers_per_machine)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "latency": self.between.latency,
            "bandwidth": self.between.line_rate,
            "efficiency": self.between.efficiency,
            "local_latency": self.inside.latency,
            "local_bandwidth": self.inside.bandwidth,
            "workers_per_machine": self.workers_per_machine,
        }


KEYS = ("network", "latency", "bandwidth", "efficiency", "local_latency", "local_bandwidth", "workers_per_machine")
"""What a network file and the command line may say."""


def read_network_file(path: Path) -> dict[str, Any]:
    """The values of a TOML file with some of :data:`KEYS`; times and rates are texts such as ``"20us"``."""
    from ringlet.config import read_toml

    table = read_toml(path)
    for name, value in table.items():
        if name not in KEYS:
            raise UnknownNameError(f"option in network file '{path}'", name, KEYS)
        kinds = (int,) if name == "workers_per_machine" else (int, float) if name == "efficiency" else (str,)
        if not isinstance(value, kinds) or isinstance(value, bool):
            expected = "a number" if str not in kinds else 'a text such as "25Gbit/s" or "20us"'
            raise ConfigError(f"network file '{path}': {name} = {value!r}, expected {expected}")
    return table


def make_network(values: dict[str, Any], workers_per_machine: int) -> Network:
    """The network that ``values`` (see :data:`KEYS`) describe; what they leave out comes from the preset."""
    name = values.get("network") or DEFAULT_NETWORK
    if name not in PRESETS:
        raise UnknownNameError("network", name, PRESETS)
    return Network(
        _changed(PRESETS[name], values, "latency", "bandwidth", values.get("efficiency")),
        _changed(PCI_EXPRESS, values, "local_latency", "local_bandwidth", None),
        values.get("workers_per_machine") or workers_per_machine,
    )


def _changed(link: Link, values: dict[str, Any], latency: str, bandwidth: str, efficiency: float | None) -> Link:
    changes: dict[str, float] = {}
    if values.get(latency) is not None:
        changes["latency"] = parse_seconds(latency, str(values[latency]))
    if values.get(bandwidth) is not None:
        changes["line_rate"] = parse_rate(bandwidth, str(values[bandwidth]))
        if bandwidth == "local_bandwidth":
            changes["efficiency"] = 1.0
    if efficiency is not None:
        changes["efficiency"] = float(efficiency)
    return replace(link, **changes)


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
_Way = Callable[[float, int, Link], Cost]


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
    way = _way(algorithm, cheapest)
    machines = network.machines(num_workers)
    if machines == 1:
        return NOTHING
    return way(num_bytes, num_workers if algorithm == "ring" else machines, network.between)


def inside_machine(algorithm: str, num_bytes: float, num_workers: int, network: Network) -> Cost:
    """The part that stays inside a machine, over its described link."""
    way = _way(algorithm, ring)
    if algorithm == "ring" and network.machines(num_workers) > 1:
        return NOTHING
    return way(num_bytes, network.on_a_machine(num_workers), network.inside)


def _way(algorithm: str, hierarchical: _Way) -> _Way:
    ways = {"hierarchical": hierarchical, "ring": ring, "halving": halving, "tree": tree}
    if algorithm not in ways:
        raise UnknownNameError("algorithm", algorithm, ALGORITHMS)
    return ways[algorithm]


class Message(NamedTuple):
    """One message: when it may leave, as a share of the pass, and what it costs."""

    ready: float
    cost: Cost


def total_cost(messages: Sequence[Message]) -> Cost:
    """All messages, one after the other."""
    return sum((message.cost for message in messages), NOTHING)


def exposed_cost(messages: Sequence[Message], pass_seconds: float) -> Cost:
    """What a step waits for, if messages leave during a pass of so many seconds; by cause, as in the total."""
    end = 0.0
    for message in messages:
        end = max(end, message.ready * pass_seconds) + message.cost.seconds
    whole = total_cost(messages)
    visible = max(0.0, end - pass_seconds)
    return whole * (visible / whole.seconds) if whole.seconds > 0 else NOTHING
