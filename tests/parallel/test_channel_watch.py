"""What a rank that waits reads about the rank it waits for, when that one has already left."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ringlet.comm.channel import layout
from ringlet.errors import CommunicationError, RankFailedError

ARRIVALS = [(5, 5), (5, 6), (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0)]
"""Numbers of a rank that waits and of a peer that is there, or one round further; they begin again at zero."""
ABSENCES = [(5, 4), (0, 0xFFFFFFFF)]


@pytest.fixture
def memory() -> layout.Bytes:
    return np.zeros(layout.channel_bytes(2), np.uint8)


@pytest.fixture(scope="module")
def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def waiting(memory: layout.Bytes, own: int, peer: int) -> layout.Watch:
    """How rank 0 watches rank 1, at these numbers."""
    for rank in (0, 1):
        layout.sign_in(memory, rank)
    layout.control_blocks(memory, 2)["sequence"] = own, peer
    return layout.Watch(memory, 0, 2)


@pytest.mark.parametrize(("own", "peer"), ARRIVALS)
def test_a_peer_that_has_arrived_may_close(memory: layout.Bytes, own: int, peer: int) -> None:
    watch = waiting(memory, own, peer)
    layout.sign_out(layout.control_blocks(memory, 2)[1:])
    watch(1, -1)


@pytest.mark.parametrize(("own", "peer"), ABSENCES)
def test_a_peer_that_closes_without_having_arrived_is_an_error(memory: layout.Bytes, own: int, peer: int) -> None:
    watch = waiting(memory, own, peer)
    watch(1, -1)
    layout.sign_out(layout.control_blocks(memory, 2)[1:])
    with pytest.raises(CommunicationError, match="closed its communicator"):
        watch(1, -1)


@pytest.mark.parametrize(("own", "peer"), ARRIVALS)
def test_a_peer_that_has_arrived_may_end(memory: layout.Bytes, own: int, peer: int, ended_process: int) -> None:
    watch = waiting(memory, own, peer)
    layout.control_blocks(memory, 2)["process"][1] = ended_process
    watch(1, -1)
    assert layout.failure_word(memory)[0] == 0


@pytest.mark.parametrize(("own", "peer"), ABSENCES)
def test_a_peer_that_ends_without_having_arrived_ends_everything(
    memory: layout.Bytes, own: int, peer: int, ended_process: int
) -> None:
    watch = waiting(memory, own, peer)
    layout.control_blocks(memory, 2)["process"][1] = ended_process
    with pytest.raises(RankFailedError, match="has ended while rank 0"):
        watch(1, -1)
    assert layout.failure_word(memory)[0] == 2
