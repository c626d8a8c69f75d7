"""The order of memory for the channel in NumPy: real fences on every processor, or no channel."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from ringlet.comm.channel import fence, layout
from ringlet.comm.channel.layout import Watch
from ringlet.comm.channel.reference import Channel
from ringlet.errors import CommunicationError

FENCES: dict[str, Callable[[], fence.Fence | None]] = {
    "native": fence.native_fence,
    "library": fence.library_fence,
    "system": lambda: fence.system_fence(platform.machine().lower()),
    "lock": fence.lock_fence,
}


@pytest.mark.parametrize("kind", FENCES)
def test_ranks_exchange_over_each_kind_of_fence(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = FENCES[kind]()
    if found is None:
        pytest.skip(f"there is no {kind} fence here")
    calls = []

    def counted() -> None:
        calls.append(threading.get_ident())
        found()

    monkeypatch.setattr("ringlet.comm.channel.reference.memory_fence", lambda: counted)
    memory, size, rounds = _memory(layout.channel_bytes(2)), 2, 50
    results: list[list[float]] = [[], []]

    def rank(number: int) -> None:
        channel = Channel(memory, number, size, layout.slot_bytes(size), 0, 0, Watch(memory, number, size))
        values, out = np.empty(1000, np.float32), np.empty(1000, np.float32)
        for turn in range(rounds):
            values[:] = turn + number
            channel.allreduce(layout.signature("allreduce"), 0, 0, values, out)
            results[number].append(float(out.min() + out.max()) / 2)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[2.0 * turn + 1 for turn in range(rounds)]] * 2
    assert len(calls) == 2 * 2 * rounds, "before the number is raised and after those of others are seen, on each rank"


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ppc64le", "riscv64"])
def test_other_processors_than_x86_never_get_a_lock_for_a_fence(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "lock_fence", lambda: pytest.fail("a lock is no fence there"))
    for name in ("native_fence", "library_fence"):
        monkeypatch.setattr(fence, name, lambda: None)
    monkeypatch.setattr(fence, "system_fence", lambda _: None)
    with pytest.raises(CommunicationError, match=rf"processor \({machine}\).*compiler") as caught:
        fence.memory_fence(machine)
    assert "libatomic" in str(caught.value)
    monkeypatch.setattr(fence, "library_fence", lambda: print)
    assert fence.memory_fence(machine) is print


@pytest.mark.skipif(sys.platform != "linux", reason="a system call of Linux")
def test_the_system_call_is_made_for_processors_that_have_a_number_for_it() -> None:
    assert fence.system_fence("unheard-of") is None
    order = fence.system_fence(platform.machine().lower())
    if order is None:
        pytest.skip("this system does not offer membarrier")
    order()


def test_a_rank_says_why_it_cannot_open_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    for name in ("native_fence", "library_fence"):
        monkeypatch.setattr(fence, name, lambda: None)
    monkeypatch.setattr(fence, "system_fence", lambda _: None)
    memory = _memory(layout.channel_bytes(2))
    with pytest.raises(CommunicationError, match="shows writes to other processors in any order"):
        Channel(memory, 0, 2, layout.slot_bytes(2), 0, 0, Watch(memory, 0, 2))


def _memory(num_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.zeros(num_bytes, np.uint8)
