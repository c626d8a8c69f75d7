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
from ringlet.named import BrokenEngineError, CollectiveError, Engine, LostRankError, Reduction, Request
from ringlet.named.settings import Settings

SIZES = (2, 3)


@pytest.fixture(scope="module")
def crews() -> Iterator[dict[int, tuple[Crew, list[Engine]]]]:
    made = {}
    for size in SIZES:
        crew = Crew(size)
        made[size] = (crew, [Engine(communicator, range(size)) for communicator in crew.communicators])
    yield made
    for crew, engines in made.values():
        for engine in engines:
            engine.leave()
        for engine in engines:
            engine.close()
        crew.close()


def play(crews, size, function):
    """What ``function(engine)`` gives on every rank."""
    crew, engines = crews[size]
    results = crew.run(lambda communicator: function(engines[communicator.rank]))
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

    def run(engine: Engine) -> list[list[float]]:
        pendings = {}

        def submit(numbers: list[int]) -> None:
            for number in numbers:
                inputs = () if kinds[number] == "barrier" else (np.array([engine.rank + 10.0 * number]),)
                request = Request(kinds[number], f"random {number}", inputs, op=Reduction.SUM)
                pendings[number] = engine.submit(request, background=background[engine.rank][number])

        order = orders[engine.rank]
        helper = threading.Thread(target=submit, args=(order[split[engine.rank] :],))
        helper.start()
        submit(order[: split[engine.rank]])
        helper.join()
        results = {number: pendings[number].wait() for number in waits[engine.rank]}
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

    def run(engine: Engine) -> list[object]:
        sums = []
        for step in range(steps[engine.rank]):
            [result] = engine.run(Request("allreduce", f"uneven.{step}", (np.ones(2, np.float32),), op=Reduction.SUM))
            sums.append(float(result[0]))
        [last] = engine.run(Request("join", "join"))
        return [sums, int(last)]

    results = play(crews, size, run)
    for (sums, last), own in zip(results, steps, strict=True):
        assert sums == [float(sum(other > step for other in steps)) for step in range(own)]
        assert last == results[0][1]
        assert steps[last] == max(steps)


def test_results_are_let_go_of_with_their_handle(crews):
    """An engine keeps nothing of what has finished."""
    import weakref

    def run(engine: Engine) -> bool:
        array = np.ones(1000)
        engine.run(Request("allreduce", "gone", (array,), (array,)))
        watch = weakref.ref(array)
        del array
        return watch() is None

    assert play(crews, 2, run) == [True, True]


def test_an_engine_of_one_rank_needs_no_thread():
    before = threading.active_count()
    engine = Engine(SingleCommunicator(), [0])
    assert threading.active_count() == before
    pending = engine.submit(Request("allreduce", "alone", (np.arange(3.0),)))
    assert pending.finished
    assert pending.wait()[0].tolist() == [0.0, 1.0, 2.0]
    engine.close()
    engine.close()
    with pytest.raises(CollectiveError, match="was shut down by rank 0"):
        engine.run(Request("barrier", "late"))


def test_an_engine_without_a_thread_is_driven_by_those_who_wait():
    crew = Crew(2)
    before = threading.active_count()
    engines = [Engine(communicator, range(2), thread=False) for communicator in crew.communicators]

    def run(communicator) -> list[float]:
        engine = engines[communicator.rank]
        late = engine.submit(Request("allreduce", "late", (np.ones(1),), op=Reduction.SUM))
        engine.run(Request("barrier", "early"))
        result = late.wait()[0].tolist()
        engine.close()
        return result

    assert crew.run(run) == [[2.0], [2.0]]
    assert threading.active_count() <= before + 2  # the threads of the crew itself
    crew.close()


def test_an_error_in_the_middle_of_an_operation_ends_the_engine_on_all_ranks(monkeypatch):
    """Whatever happens on one rank only, the others are not left waiting."""
    crew = Crew(2)
    engines = [Engine(communicator, range(2)) for communicator in crew.communicators]
    broken = engines[0]._rounds._execution

    def fail(_works: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(broken, "carry_out", fail)

    def run(communicator) -> str:
        engine = engines[communicator.rank]
        try:
            engine.submit(Request("allreduce", "doomed", (np.ones(1),)), background=False).wait()
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    first, second = crew.run(run)
    assert first == "MemoryError: no room"
    assert "BrokenEngineError: allreduce 'doomed' did not take place" in second
    with pytest.raises(CollectiveError, match="a round of rank 0 failed: MemoryError: no room"):
        engines[0].run(Request("barrier", "later"))
    assert issubclass(BrokenEngineError, CommunicationError)
    assert LostRankError("gone").exit_code == EXIT_RANK_DIED
    for engine in engines:
        engine.close()
    crew.close()


def test_idle_ranks_take_part_now_and_then():
    """A rank that has nothing still answers, so the other finds out that it waits in vain."""
    crew = Crew(2)
    patient = Settings(stall_warning=0.0, stall_error=0.3)
    engines = [Engine(communicator, range(2), settings=patient) for communicator in crew.communicators]
    with pytest.raises(CollectiveError, match=r"rank 1 did not submit it within 0\.3 s, rank 0 did"):
        engines[0].run(Request("allreduce", "alone", (np.ones(1),)))
    for engine in engines:
        engine.leave()
    for engine in engines:
        engine.close()
    crew.close()
