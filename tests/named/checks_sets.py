"""Process sets, objects and timelines of a session on three ranks."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import numpy as np
from named_common import expect_error, run, same, submit

from ringlet.comm import world
from ringlet.errors import DataError, UsageError
from ringlet.named import ProcessSet, Reduction, session


def total(process_set=None, name="total", value=None):
    group = session.collectives(process_set)
    own = np.array([world.rank() + 1.0 if value is None else value])
    return run(group, "allreduce", name, own, op=Reduction.SUM)[0].tolist()


def static_sets_are_there_after_init(folder):
    first, second = ProcessSet([0, 2]), ProcessSet(range(1, 3))
    expect_error(first.size, "is not in use", ValueError)
    session.init(process_sets=[first, second, [1]])
    rank = world.rank()
    assert [known.process_set_id for known in session.process_sets().values()] == [0, 1, 2, 3]
    assert [known.ranks for known in session.process_sets().values()] == [[0, 1, 2], [0, 2], [1, 2], [1]]
    assert (first.included(), second.included()) == (rank != 1, rank != 0)
    assert (first.size(), second.size(), session.global_process_set.size()) == (2, 2, 3)
    if first.included():
        assert first.rank() == (0, None, 1)[rank]
        assert total(first) == [4.0]
    else:
        expect_error(first.rank, "rank 1 is not in the process set of ranks [0, 2]", ValueError)
        expect_error(lambda: session.collectives(first), "rank 1 cannot use ProcessSet", ValueError)
        assert total(session.process_sets()[3]) == [2.0]
    assert total() == [6.0]
    session.shutdown()
    assert first.process_set_id is None
    assert repr(first) == "ProcessSet(process_set_id=None, ranks=[0, 2])"


def dynamic_sets_come_and_go(folder):
    session.init()
    added = session.add_process_set([2, 0])
    assert (added.ranks, added.process_set_id) == ([0, 2], 1)
    if added.included():
        assert total(added) == [4.0]
    again = ProcessSet([0, 2])
    for call, words in (
        (lambda: session.add_process_set(again), "has the same ranks as ProcessSet(process_set_id=1, ranks=[0, 2])"),
        (lambda: session.add_process_set(added), "is in use already"),
        (lambda: session.add_process_set([0, 1, 2]), "has the same ranks as ProcessSet(process_set_id=0"),
        (lambda: session.add_process_set([3]), "expected ranks from 0 to 2"),
        (lambda: session.add_process_set([]), "at least one"),
        (lambda: session.add_process_set([world.rank()]), "do not fit together"),
        (lambda: ProcessSet([1, 1]), "expected every rank once"),
    ):
        expect_error(call, words, ValueError)
    assert session.remove_process_set(added)
    assert not session.remove_process_set(added)
    assert not session.remove_process_set(session.global_process_set)
    expect_error(lambda: session.collectives(added), "is not in use", ValueError)
    second = session.add_process_set(again)
    assert second is again
    assert second.process_set_id == 2
    if second.included():
        assert total(second) == [4.0]
    assert total() == [6.0]
    session.shutdown()


def overlapping_sets_may_be_used_in_crossing_order(folder):
    pairs = [ProcessSet(ranks) for ranks in ([0, 1], [1, 2], [0, 2])]
    session.init(process_sets=pairs)
    rank = world.rank()
    mine = [each for each in pairs if each.included()]
    order = mine if rank % 2 else mine[::-1]
    for number in range(10):
        all_ranks = submit(session.collectives(), "allreduce", f"all {number}", np.array([1.0]), op=Reduction.SUM)
        handles = [
            (
                each,
                submit(
                    session.collectives(each), "allreduce", f"cross {number}", np.array([rank + 1.0]), op=Reduction.SUM
                ),
            )
            for each in order
        ]
        run(session.collectives(), "barrier", f"between {number}")
        for each, handle in handles[::-1]:
            same(handle.wait()[0], np.array([sum(member + 1.0 for member in each.ranks or ())]))
        assert all_ranks.wait()[0].tolist() == [3.0]
    session.shutdown()


def roots_are_ranks_of_the_job_in_sets_too(folder):
    session.init(process_sets=[[1, 2]])
    pair = session.process_sets()[1]
    if pair.included():
        group = session.collectives(pair)
        assert run(group, "broadcast", "root", np.array([world.rank()]), root=2)[0].tolist() == [2]
        expect_error(lambda: run(group, "broadcast", "far", np.zeros(1), root=0), "expected one of [1, 2]", ValueError)
        [last] = run(group, "join", "join")
        assert int(last) in (1, 2)
        assert session.broadcast_object({"from": world.rank()}, 2, process_set=pair) == {"from": 2}
        assert session.allgather_object(world.rank(), process_set=pair) == [1, 2]
    session.shutdown()


def sets_are_independent_of_a_join(folder):
    session.init(process_sets=[[0, 1]])
    pair = session.process_sets()[1]
    if world.rank() == 2:
        run(session.collectives(), "join", "join")
    else:
        if pair.included():
            assert run(session.collectives(pair), "allgather", "rows", np.array([world.rank()]))[0].tolist() == [0, 1]
        run(session.collectives(), "join", "join")
    session.shutdown()


def objects_travel(folder):
    session.init()
    rank = world.rank()
    values = [None, True, 1 << 80, 2.5, "text ü", b"\0bytes", [1, (2, [3])], {"a": {1: (2,)}}, 1 + 2j]
    for root in range(3):
        for value in values:
            received = session.broadcast_object(value if rank == root else "another", root)
            assert received == value
            assert type(received) is type(value)
    arrays = {"weights": np.arange(6.0).reshape(2, 3), "half": np.ones(3, np.float16), "empty": np.zeros((0, 2))}
    received = session.broadcast_object(arrays if rank == 1 else None, 1, name="arrays")
    assert list(received) == list(arrays)
    for name, array in arrays.items():
        same(received[name], array)
    gathered = session.allgather_object({"rank": rank, "rows": np.full(rank * 1000, rank)})
    assert [(each["rank"], each["rows"].tolist()) for each in gathered] == [(r, [r] * (r * 1000)) for r in range(3)]
    session.shutdown()


def objects_that_cannot_travel_raise_everywhere(folder):
    session.init()
    cannot = object() if world.rank() == 1 else {"fine": 1}
    words = "the value of rank 1 is of type builtins.object, which cannot travel"
    expect_error(lambda: session.broadcast_object(cannot, 1), words, ValueError)
    expect_error(lambda: session.allgather_object([cannot] if world.rank() == 1 else 1), "the value of rank 1[0]")
    expect_error(lambda: session.broadcast_object(1, 7), "root 7 is not in the process set", ValueError)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    expect_error(lambda: session.allgather_object(deep if world.rank() == 0 else 1), "nested too deeply")
    assert total() == [6.0]
    session.shutdown()


def hostile_bytes_are_refused(folder):
    """A rank that speaks the language of the collectives but sends no value."""
    session.init()
    data = (9).to_bytes(8, "little") + b"Vcposix\ns"
    if world.rank() == 0:
        handle = submit(session.collectives(), "allgather", "hostile", np.frombuffer(data, np.uint8))
        handle.wait()
    else:
        expect_error(
            lambda: session.allgather_object(1, name="hostile"), "are no value that Ringlet encoded", DataError
        )
    session.shutdown()


def a_timeline_shows_what_happened(folder):
    session.init()
    rank = world.rank()
    path = Path(folder) / "timeline.json"
    session.start_timeline(path, mark_cycles=True)
    if rank == 0:
        expect_error(lambda: session.start_timeline(path), "is being written already", ValueError)
    added = session.add_process_set([0, 1])
    for number in range(2):
        total(name=f"gradient.{number}")
    if added.included():
        total(added, "pair")
    session.stop_timeline()
    session.stop_timeline()
    total(name="afterwards")
    if rank == 0:
        events = json.loads(path.read_text())
        rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert rows == {"add_process_set.ringlet.add_process_set.noname", "allreduce.gradient", "allreduce.pair"}
        assert events[0]["args"]["start_time_since_epoch_in_micros"] > 0
        assert sum(event["name"] == "CYCLE_START" for event in events) >= 3
        shown = [(event["name"], event["args"]["name"]) for event in events if event["ph"] == "X"]
        assert shown.count(("NEGOTIATE_ALLREDUCE", "gradient.1")) == shown.count(("ALLREDUCE", "gradient.1")) == 1
        assert ("ALLREDUCE", "pair") in shown
        assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
        expect_error(lambda: session.start_timeline(path / "below"), "cannot be written", UsageError)
    session.start_timeline(path)  # an unfinished one ends with the session
    total()
    session.shutdown()
    if rank == 0:
        names = [event["name"] for event in json.loads(path.read_text())]
        assert names == ["trace_began", "thread_name", "NEGOTIATE_ALLREDUCE", "ALLREDUCE"]


CHECKS = {
    check.__name__: check
    for check in [
        static_sets_are_there_after_init,
        dynamic_sets_come_and_go,
        overlapping_sets_may_be_used_in_crossing_order,
        roots_are_ranks_of_the_job_in_sets_too,
        sets_are_independent_of_a_join,
        objects_travel,
        objects_that_cannot_travel_raise_everywhere,
        hostile_bytes_are_refused,
        a_timeline_shows_what_happened,
    ]
}


def run_all(comm, folder):
    """For every check None, or how it failed on this rank."""
    results: dict[str, str | None] = {}
    for name, check in CHECKS.items():
        sys.stderr.write(f"rank {comm.rank}: {name}\n")
        world.use(comm)  # as if the session had found the other ranks itself
        try:
            check(folder)
        except Exception:
            results[name] = traceback.format_exc()
            sys.stderr.write(results[name] or "")
            session.shutdown()
        else:
            results[name] = None
    return results
