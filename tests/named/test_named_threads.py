"""Engines of ranks that are threads of one process: random orders of submission, from several threads each."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threads import Crew

from ringlet.comm.single import SingleCommunicator
from ringlet.errors import EXIT_RANK_DIED, CommunicationError
from ringlet.named import (
    BrokenCollectivesError,
    CollectiveError,
    LostRankError,
    NamedCollectives,
    Reduction,
    Submission,
)
from ringlet.named.monitoring import Patience

SIZES = (2, 3)


@pytest.fixture(scope="module")
def crews() -> Iterator[dict[int, tuple[Crew, list[NamedCollectives]]]]:
    made = {}
    for size in SIZES:
        crew = Crew(size)
        made[size] = (crew, [NamedCollectives(communicator, range(size)) for communicator in crew.communicators])
    yield made
    for crew, groups in made.values():
        for group in groups:
            group.leave()
        for group in groups:
            group.close()
        crew.close()


def play(crews, size, function):
    """What ``function(group)`` gives on every rank."""
    crew, groups = crews[size]
    results = crew.run(lambda communicator: function(groups[communicator.rank]))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@given(data=st.data(), size=st.sampled_from(SIZES))
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_random_orders_give_right_results(crews, data, size):
    num_requests = data.draw(st.integers(1, 12))
    kinds = data.draw(
        st.lists(
            st.sampled_from(["allreduce", "allgather", "broadcast", "barrier"]),
            min_size=num_requests,
            max_size=num_requests,
        )
    )
    orders = [data.draw(st.permutations(range(num_requests))) for _ in range(size)]
    waits = [data.draw(st.permutations(range(num_requests))) for _ in range(size)]
    background = [data.draw(st.lists(st.booleans(), min_size=num_requests, max_size=num_requests)) for _ in range(size)]
    split = [data.draw(st.integers(0, num_requests)) for _ in range(size)]

    def run(group: NamedCollectives) -> list[list[float]]:
        handles = {}

        def submit(numbers: list[int]) -> None:
            for number in numbers:
                inputs = () if kinds[number] == "barrier" else (np.array([group.rank + 10.0 * number]),)
                submission = Submission(kinds[number], f"random {number}", inputs, op=Reduction.SUM)
                handles[number] = group.submit(submission, background=background[group.rank][number])

        order = orders[group.rank]
        helper = threading.Thread(target=submit, args=(order[split[group.rank] :],))
        helper.start()
        submit(order[: split[group.rank]])
        helper.join()
        results = {number: handles[number].wait() for number in waits[group.rank]}
        return [results[number][0].tolist() if results[number] else [] for number in range(num_requests)]

    every = [[rank + 10.0 * number for rank in range(size)] for number in range(num_requests)]
    expected = [
        {"allreduce": [sum(each)], "allgather": each, "broadcast": each[:1], "barrier": []}[kind]
        for kind, each in zip(kinds, every, strict=True)
    ]
    assert play(crews, size, run) == [expected] * size


@given(data=st.data(), size=st.sampled_from(SIZES))
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def test_uneven_counts_end_by_joining(crews, data, size):
    steps = [data.draw(st.integers(0, 5)) for _ in range(size)]

    def run(group: NamedCollectives) -> list[object]:
        sums = []
        for step in range(steps[group.rank]):
            [result] = group.run(Submission("allreduce", f"uneven.{step}", (np.ones(2, np.float32),), op=Reduction.SUM))
            sums.append(float(result[0]))
        [last] = group.run(Submission("join", "join"))
        return [sums, int(last)]

    results = play(crews, size, run)
    for (sums, last), own in zip(results, steps, strict=True):
        assert sums == [float(sum(other > step for other in steps)) for step in range(own)]
        assert last == results[0][1]
        assert steps[last] == max(steps)


def test_results_are_let_go_of_with_their_handle(crews):
    """An collectives keeps nothing of what has finished."""
    import weakref

    def run(group: NamedCollectives) -> bool:
        array = np.ones(1000)
        group.run(Submission("allreduce", "gone", (array,), (array,)))
        watch = weakref.ref(array)
        del array
        return watch() is None

    assert play(crews, 2, run) == [True, True]


def test_an_engine_of_one_rank_needs_no_thread():
    before = threading.active_count()
    group = NamedCollectives(SingleCommunicator(), [0])
    assert threading.active_count() == before
    handle = group.submit(Submission("allreduce", "alone", (np.arange(3.0),)))
    assert handle.finished
    assert handle.wait()[0].tolist() == [0.0, 1.0, 2.0]
    group.close()
    group.close()
    with pytest.raises(CollectiveError, match="was shut down by rank 0"):
        group.run(Submission("barrier", "late"))


def test_an_engine_without_a_thread_is_driven_by_those_who_wait():
    crew = Crew(2)
    before = threading.active_count()
    groups = [NamedCollectives(communicator, range(2), thread=False) for communicator in crew.communicators]

    def run(communicator) -> list[float]:
        group = groups[communicator.rank]
        late = group.submit(Submission("allreduce", "late", (np.ones(1),), op=Reduction.SUM))
        group.run(Submission("barrier", "early"))
        result = late.wait()[0].tolist()
        group.close()
        return result

    assert crew.run(run) == [[2.0], [2.0]]
    assert threading.active_count() <= before + 2  # the threads of the crew itself
    crew.close()


def test_an_error_in_the_middle_of_an_operation_ends_the_engine_on_all_ranks(monkeypatch):
    """Whatever happens on one rank only, the others are not left waiting."""
    crew = Crew(2)
    groups = [NamedCollectives(communicator, range(2)) for communicator in crew.communicators]
    broken = groups[0]._rounds._execution

    def fail(_works: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(broken, "carry_out", fail)

    def run(communicator) -> str:
        group = groups[communicator.rank]
        try:
            group.submit(Submission("allreduce", "doomed", (np.ones(1),)), background=False).wait()
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    first, second = crew.run(run)
    assert first == "MemoryError: no room"
    assert "BrokenCollectivesError: allreduce 'doomed' did not take place" in second
    with pytest.raises(CollectiveError, match="a round of rank 0 failed: MemoryError: no room"):
        groups[0].run(Submission("barrier", "later"))
    assert issubclass(BrokenCollectivesError, CommunicationError)
    assert LostRankError("gone").exit_code == EXIT_RANK_DIED
    for group in groups:
        group.close()
    crew.close()


def test_idle_ranks_take_part_now_and_then():
    """A rank that has nothing still answers, so the other finds out that it waits in vain."""
    crew = Crew(2)
    patient = Patience(stall_warning=0.0, stall_error=0.3)
    groups = [NamedCollectives(communicator, range(2), patience=patient) for communicator in crew.communicators]
    with pytest.raises(CollectiveError, match=r"rank 1 did not submit it within 0\.3 s, rank 0 did"):
        groups[0].run(Submission("allreduce", "alone", (np.ones(1),)))
    for group in groups:
        group.leave()
    for group in groups:
        group.close()
    crew.close()
