"""The α-β formulae: hand-computed values, and laws that hold for all numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from scenarios import FAST, SLOW

from ringlet.errors import UnknownNameError, UsageError
from ringlet.planning.network import (
    ALGORITHMS,
    PRESETS,
    Cost,
    Link,
    Network,
    between_machines,
    cheapest,
    gather,
    halving,
    inside_machine,
    ring,
    ring_bytes,
    tree,
)

LINK = Link(1e-3, 1e6)
workers = st.integers(1, 5000)
sizes = st.floats(0, 1e10)
links = st.builds(Link, st.floats(0, 1e-2), st.floats(1e3, 1e12), st.floats(0.1, 1))


@pytest.mark.parametrize(
    ("algorithm", "num_workers", "latency", "transfer"),
    [
        (ring, 4, 6e-3, 1.5),  # 2·3 messages; 2·3/4 of a megabyte at 1 MB/s
        (ring, 2, 2e-3, 1.0),
        (halving, 8, 6e-3, 1.75),  # 2·3 rounds; 2·7/8
        (halving, 6, 6e-3, 3.5),  # 2·2 rounds among four, 2·3/4; and the whole there and back
        (tree, 5, 6e-3, 2.0),  # up and down three levels
        (gather, 4, 3e-3, 3.0),
    ],
)
def test_formulae_give_hand_computed_values(algorithm, num_workers, latency, transfer):
    cost = algorithm(1e6, num_workers, LINK)
    assert cost == Cost(pytest.approx(latency), pytest.approx(transfer))


def test_hierarchical_exchange_gives_hand_computed_values():
    network = Network(between=Link(1e-3, 1e6), inside=Link(1e-4, 1e7), workers_per_machine=4)
    inside = inside_machine("hierarchical", 1e6, 8, network)
    between = between_machines("hierarchical", 1e6, 8, network)
    assert inside == Cost(pytest.approx(6e-4), pytest.approx(0.15))
    assert between == Cost(pytest.approx(2e-3), pytest.approx(1.0))


@given(num_bytes=sizes, num_workers=workers)
def test_a_worker_of_a_ring_sends_twice_all_but_its_part(num_bytes, num_workers):
    assert ring_bytes(num_bytes, num_workers) == pytest.approx(
        2 * (num_bytes - num_bytes / num_workers), rel=1e-9, abs=1e-3
    )


@given(num_bytes=sizes, link=links)
def test_one_worker_exchanges_nothing(num_bytes, link):
    network = Network(link, link, 1)
    for algorithm in ALGORITHMS:
        assert between_machines(algorithm, num_bytes, 1, network) == Cost()
        assert inside_machine(algorithm, num_bytes, 1, network) == Cost()


@given(num_bytes=sizes, num_workers=workers, link=links, factor=st.floats(1, 1000), name=st.sampled_from(ALGORITHMS))
def test_a_faster_link_is_never_slower(num_bytes, num_workers, link, factor, name):
    faster = Link(link.latency / factor, link.line_rate * factor, link.efficiency)
    slow = between_machines(name, num_bytes, num_workers, Network(link, link, 1))
    fast = between_machines(name, num_bytes, num_workers, Network(faster, link, 1))
    assert fast.seconds <= slow.seconds * (1 + 1e-12)


@given(num_bytes=sizes, per_machine=st.integers(1, 16), machines=st.integers(2, 64), link=links)
def test_hierarchical_is_never_slower_than_a_flat_ring_where_machines_are_fast_inside(
    num_bytes, per_machine, machines, link
):
    inside = Link(link.latency, link.line_rate * machines, link.efficiency)
    network, count = Network(link, inside, per_machine), per_machine * machines

    def seconds(algorithm):
        inner = inside_machine(algorithm, num_bytes, count, network)
        return (inner + between_machines(algorithm, num_bytes, count, network)).seconds

    assert seconds("hierarchical") <= seconds("ring") * (1 + 1e-9)


@given(num_bytes=sizes, num_workers=workers, link=links)
def test_machines_take_the_cheaper_of_ring_and_halving(num_bytes, num_workers, link):
    both = [way(num_bytes, num_workers, link).seconds for way in (ring, halving)]
    assert cheapest(num_bytes, num_workers, link).seconds == min(both)


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'ring'"):
        between_machines("rings", 1.0, 2, Network(SLOW, FAST, 1))


@pytest.mark.parametrize("values", [(-1e-6, 1e9, 1.0), (0.0, 0.0, 1.0), (0.0, 1e9, 0.0), (0.0, 1e9, 1.1)])
def test_an_impossible_link_is_refused(values):
    with pytest.raises(UsageError, match="cannot be"):
        Link(*values)


def test_presets_get_faster_in_their_order_of_line_rates():
    rates = [PRESETS[name].bandwidth for name in ("1gbe", "10gbe", "25gbe", "100gbe", "infiniband-hdr")]
    assert rates == sorted(rates)
    assert PRESETS["25gbe"].bandwidth == pytest.approx(25e9 / 8 * 0.9415, rel=1e-3)
