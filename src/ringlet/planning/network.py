"""The links over which workers talk: between machines and inside one, as two numbers each (the α-β model).

A message of n bytes takes ``latency + n / bandwidth``. The bandwidth is what payload gets: the line rate times the
*efficiency* of the protocol, the share of a line that is not headers and gaps. Reasons for the presets:

- TCP over Ethernet frames of 1,500 bytes carries 1,448 of 1,538 bytes on the wire: 94 %.
- RoCE (version 2) with its usual packets of 1,024 bytes has 82 bytes of headers, checksums and gaps for each: 92.6 %.
- InfiniBand: 12 of 12.5 GB/s are what NCCL's developers call the peak of a 100 Gb/s card: 96 %.
- Latencies are those of one message as an MPI program sees it: tens of microseconds through the kernel's TCP, about two
  with RDMA. They differ from site to site: give your own (``--latency``) if you know them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringlet.bench.quantities import parse_rate, parse_seconds
from ringlet.errors import ConfigError, UnknownNameError, UsageError

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
