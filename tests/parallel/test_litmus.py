"""The litmus test of the channel's memory order: no violation with the channel's accesses, some without any order."""

from __future__ import annotations

import platform

import pytest

from ringlet import kernels
from ringlet.comm.channel import num_usable_cores

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
pytestmark = pytest.mark.skipif("compiled" not in kernels.available(), reason="needs the compiled kernels")


def litmus(shape: str, order: str, num_rounds: int) -> int:
    from ringlet.kernels import _native

    return int(_native.litmus(shape, order, num_rounds))


@pytest.mark.parametrize("shape", ["message", "reuse", "sleep"])
def test_the_order_of_the_channel_holds(shape: str) -> None:
    assert litmus(shape, "channel", 20_000) == 0


@pytest.mark.skipif(not IS_X86, reason="what other processors show depends on their make")
@pytest.mark.skipif(num_usable_cores() < 2, reason="one processor sees its own writes in order")
@pytest.mark.parametrize(("shape", "order"), [("sleep", "relaxed"), ("message", "streamed")])
def test_without_an_order_violations_are_found(shape: str, order: str) -> None:
    assert any(litmus(shape, order, 200_000) for _ in range(100))


@pytest.mark.parametrize(
    ("shape", "order", "num_rounds", "message"),
    [
        ("massage", "channel", 1, "expected the shape message, reuse or sleep"),
        ("message", "strict", 1, "expected the order channel, relaxed or streamed"),
        ("message", "channel", 0, "expected 0 < rounds"),
    ],
)
def test_a_wrong_request_is_refused(shape: str, order: str, num_rounds: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        litmus(shape, order, num_rounds)
