"""The thread behind started collectives: order, errors, the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlet.comm import collective
from ringlet.comm.collective import Background, Collective
from ringlet.comm.contract import Communicator, Op
from ringlet.comm.reductions import ALLREDUCE
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.transfers import BARRIER
from ringlet.errors import CommunicationError


class Recorder:
    """Stands for a duplicate communicator: notes what is called, in which thread; may be held up."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.threads: set[str] = set()
        self.go = threading.Event()
        self.go.set()
        self.closed = threading.Event()

    def run(self, collective: Collective[Any], *arguments: Any) -> Any:
        if collective is BARRIER:
            raise ZeroDivisionError("on purpose")
        self.go.wait()
        self.calls.append(arguments[0])
        self.threads.add(threading.current_thread().name)
        return arguments[0]

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def make(recorder: Recorder) -> Callable[[], Communicator]:
    return lambda: recorder  # type: ignore[return-value]


def test_collectives_run_in_their_order_in_one_thread(recorder: Recorder, make: Callable[[], Communicator]) -> None:
    worker = Background(make)
    handles = [worker.submit(ALLREDUCE, number) for number in range(50)]
    assert [handle.wait() for handle in handles] == list(range(50))
    assert recorder.calls == list(range(50))
    assert recorder.threads == {"ringlet-collectives"}
    worker.close()
    assert recorder.closed.is_set()


def test_a_handle_is_done_when_its_collective_is(recorder: Recorder, make: Callable[[], Communicator]) -> None:
    recorder.go.clear()
    worker = Background(make)
    handle = worker.submit(ALLREDUCE, 1)
    assert not handle.done()
    recorder.go.set()
    assert handle.wait() == 1
    assert handle.done()
    worker.close()


def test_an_error_is_raised_by_its_own_handle_alone(make: Callable[[], Communicator]) -> None:
    worker = Background(make)
    failing, fine = worker.submit(BARRIER), worker.submit(ALLREDUCE, 3)
    assert fine.wait() == 3
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            failing.wait()
    worker.close()


def test_a_duplicate_that_cannot_be_made_is_an_error_of_the_handle() -> None:
    def fail() -> Communicator:
        raise CommunicationError("no second wire")

    worker = Background(fail)
    with pytest.raises(CommunicationError, match="no second wire"):
        worker.submit(BARRIER).wait()
    worker.close()


def test_closing_finishes_what_was_started(recorder: Recorder, make: Callable[[], Communicator]) -> None:
    worker = Background(make)
    handles = [worker.submit(ALLREDUCE, number) for number in range(5)]
    worker.close()
    worker.close()
    assert all(handle.done() for handle in handles)
    with pytest.raises(CommunicationError, match="closed"):
        worker.submit(ALLREDUCE, 1)


def test_closing_does_not_wait_forever_for_ranks_that_never_come(
    recorder: Recorder, make: Callable[[], Communicator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "SECONDS_TO_FINISH", 0.01)
    recorder.go.clear()
    worker = Background(make)
    handle = worker.submit(ALLREDUCE, 1)
    worker.close()
    assert not handle.done()
    recorder.go.set()
    assert handle.wait() == 1


def test_nothing_is_made_before_the_first_start() -> None:
    made: list[int] = []

    def duplicate() -> Communicator:
        made.append(1)
        return SingleCommunicator()

    worker = Background(duplicate)
    assert not made
    assert worker.submit(ALLREDUCE, np.ones(2), Op.SUM, None).wait().tolist() == [1, 1]
    assert made == [1]
    worker.close()


@pytest.mark.parametrize("name", ["group", "shared_array", "close", "_wire", "start"])
def test_only_collectives_can_be_started(name: str) -> None:
    with pytest.raises(CommunicationError, match="cannot be started: expected one of allgather, allreduce"):
        SingleCommunicator().start(name)
