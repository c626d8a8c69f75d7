"""Ranks that submit in different order, from several threads, at different times; join; shared buffers."""

from __future__ import annotations

import threading

import numpy as np
from named_common import expect_error, run, same, still_works, submit, values

from ringlet.named import CollectiveError, DuplicateNameError, NamedCollectives, Reduction


def total(group: NamedCollectives, seed=0, shape=(3,)):
    return np.sum([values(rank, shape, seed=seed) for rank in range(group.size)], axis=0, dtype=np.float32)


def ranks_may_submit_in_any_order(group):
    for attempt in range(3):
        order = np.random.default_rng([attempt, group.rank]).permutation(30)
        handles = {}
        for number in order.tolist():
            own = values(group.rank, (3,), seed=number)
            kind = ("allreduce", "allgather", "broadcast")[number % 3]
            handles[number] = submit(
                group, kind, f"any order {number}", own, op=Reduction.SUM, background=bool(number % 2)
            )
        for number in np.random.default_rng([group.rank, attempt]).permutation(30).tolist():
            [result] = handles[number].wait()
            every = [values(rank, (3,), seed=number) for rank in range(group.size)]
            same(result, (total(group, number), np.concatenate(every), every[0])[number % 3])


def one_rank_may_be_ahead_while_all_pass_a_barrier(group):
    early = submit(group, "allreduce", "ahead", values(0, (3,)), op=Reduction.SUM) if group.rank == 0 else None
    for number in range(3):
        run(group, "barrier", f"passed {number}")
    if early is None:
        early = submit(group, "allreduce", "ahead", values(group.rank, (3,)), op=Reduction.SUM)
    elif group.size > 1:
        assert not early.finished
    same(early.wait()[0], total(group))


def a_request_finishes_although_nobody_waits_for_it(group):
    handle = submit(group, "allreduce", "unattended", values(group.rank, (3,)), op=Reduction.SUM)
    patience = threading.Event()
    while not handle.done():
        patience.wait(0.001)
    same(handle.wait()[0], total(group))
    assert handle.wait()[0] is handle.wait()[0]


def threads_may_submit_and_wait_at_the_same_time(group):
    problems = []

    def work(thread: int) -> None:
        try:
            for number in range(10):
                own = values(group.rank, (3,), seed=thread)
                [result] = run(group, "allreduce", f"thread {thread} number {number}", own, op=Reduction.SUM)
                same(result, total(group, thread))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems


def a_name_twice_in_flight_is_refused(group):
    if group.size == 1:
        return
    own = values(group.rank, (3,))
    if group.rank == 0:
        first = submit(group, "allreduce", "twice", own, op=Reduction.SUM)
        expect_error(
            lambda: submit(group, "allreduce", "twice", own), "'twice' is already under way on rank", ValueError
        )
        expect_error(lambda: submit(group, "barrier", "twice"), "already under way", DuplicateNameError)
        run(group, "barrier", "refused")
    else:
        run(group, "barrier", "refused")
        first = submit(group, "allreduce", "twice", own, op=Reduction.SUM)
    same(first.wait()[0], total(group))
    same(run(group, "allreduce", "twice", own, op=Reduction.SUM)[0], total(group))


def a_name_stays_taken_until_the_program_has_noticed_its_end(group):
    """Whether it is taken must not depend on how fast the others are."""
    own = np.ones(3)
    first = submit(group, "allreduce", "unnoticed", own)
    while not first.finished:
        first._driver.nudge()
    expect_error(lambda: submit(group, "allreduce", "unnoticed", own), "already under way", DuplicateNameError)
    assert first.done()
    submit(group, "allreduce", "unnoticed", own)
    submit(group, "allreduce", "other", own).wait()
    run(group, "barrier", "all have come here")  # a rank that waits for anything has noticed what had ended
    same(run(group, "allreduce", "unnoticed", own, op=Reduction.SUM)[0], own * group.size)


def names_are_any_text(group):
    names = ("", "a" * 5000, "ümläut 名 \n", "7", "007", "x.4294967295", "x.99999999999", "x.1", "x.01")
    handles = [
        submit(group, "allreduce", name, np.array([float(place)]), op=Reduction.MAX) for place, name in enumerate(names)
    ]
    assert [handle.wait()[0].tolist() for handle in handles] == [[float(place)] for place in range(len(names))]


def default_names_count_per_kind(group):
    stem = group.default_name("sample").rpartition(".")[0]
    assert stem == "sample.noname"
    assert group.default_name("sample") == "sample.noname.2"
    assert group.default_name("other") == "other.noname.1"


def default_names_fit_again_after_ranks_have_joined_unevenly(group):
    for _ in range(group.rank + 1):
        run(group, "allreduce", group.default_name("allreduce"), np.ones(2), op=Reduction.SUM)
    run(group, "join", "join")
    [result] = run(group, "allreduce", group.default_name("allreduce"), np.ones(2), op=Reduction.SUM)
    same(result, [float(group.size)] * 2)


def join_gives_zeros_for_ranks_that_have_run_out(group):
    """Rank r has r + 1 steps; averages still divide by all."""
    size, rank = group.size, group.rank
    for step in range(rank + 1):
        left = [other for other in range(size) if other >= step]
        own = np.array([rank + 1.0, 2.0])
        small = submit(group, "allreduce", f"uneven.{step}", own, op=Reduction.SUM)
        average = submit(group, "allreduce", f"uneven average.{step}", own.astype(np.float32))
        large = submit(group, "allreduce", f"large.{step}", np.full(30_000, 1.0), op=Reduction.SUM)
        least = submit(group, "allreduce", f"least.{step}", own, op=Reduction.MIN)
        assert run(group, "barrier", f"uneven barrier.{step}") == []
        sums = np.array([sum(other + 1.0 for other in left), 2.0 * len(left)])
        same(small.wait()[0], sums)
        np.testing.assert_allclose(average.wait()[0], sums / size, rtol=1e-6)
        assert (large.wait()[0] == len(left)).all()
        same(least.wait()[0], [min(left) + 1.0, 2.0] if len(left) == size else [0.0, 0.0])
    [last] = run(group, "join", "join")
    assert int(last) == group.ranks[-1]
    [last] = run(group, "join", "join")  # and again
    assert int(last) in group.ranks


def the_last_to_join_is_the_same_everywhere(group):
    for late in range(group.size):
        if group.rank == late:
            run(group, "allreduce", f"late.{late}", np.ones(2))
        [last] = run(group, "join", "join")
        assert int(last) == group.ranks[late] or group.size == 1


def only_allreduces_and_barriers_work_while_a_rank_has_joined(group):
    if group.size > 1 and group.rank > 0:
        for kind in ("allgather", "broadcast", "alltoall", "reducescatter"):
            own = np.zeros((group.size, 2))
            handle = submit(group, kind, f"joined {kind}", own, root=group.ranks[1])
            message = expect_error(handle.wait, f"rank {group.ranks[0]} has joined", RuntimeError)
            assert f"no {kind} until all ranks have joined" in message
        same(run(group, "allreduce", "joined", np.ones(2), op=Reduction.SUM)[0], [group.size - 1.0] * 2)
    run(group, "join", "join")
    still_works(group)


def a_joined_rank_takes_part_in_adasum(group):
    if group.size not in (2, 4):
        return
    if group.rank > 0:
        [result] = run(group, "allreduce", "adasum joined", np.array([0.0, group.rank]), op=Reduction.ADASUM)
        assert result[1] > 0
    run(group, "join", "join")


def buffers_are_reduced_in_place(group):
    for dtype in ("float32", "float64", "float16", "int32"):
        buffer = group.buffer(70_001, dtype)
        assert (buffer.own.shape, buffer.dtype) == ((70_001,), np.dtype(dtype))
        assert not buffer.own.any()
        stack = [values(rank, (70_001,), dtype) for rank in range(group.size)]
        for op, ranges in (
            (Reduction.SUM, [(0, None), (7, 7), (-3, None)]),
            (Reduction.AVERAGE, [(5, 69_999)]),
            (Reduction.MAX, [(5, None)]),
        ):
            for start, stop in ranges:
                buffer.own[:] = stack[group.rank]
                [result] = group.allreduce_buffer(buffer, "range", op, start=start, stop=stop, postscale=2.0).wait()
                reduced = {Reduction.SUM: np.sum, Reduction.AVERAGE: np.sum, Reduction.MAX: np.max}[op](stack, axis=0)
                factor = 2 / group.size if op is Reduction.AVERAGE else 2
                if dtype == "int32" and op is Reduction.AVERAGE:
                    expected = 2 * np.trunc(reduced / group.size)
                else:
                    expected = factor * reduced.astype(np.float64)
                whole = stack[group.rank].astype(np.float64)
                whole[start:stop] = expected[start:stop]
                np.testing.assert_allclose(
                    buffer.own.astype(np.float64), whole, rtol=1e-2 if dtype == "float16" else 1e-6
                )
                assert np.shares_memory(result, buffer.own) or result.size == 0
        run(group, "barrier", "before the next")


def buffers_are_scaled_before_the_sum(group):
    buffer = group.buffer(70_001, np.float32)
    buffer.own[:] = 3e38
    group.allreduce_buffer(buffer, "large", Reduction.SUM, prescale=0.125, postscale=0.5).wait()
    np.testing.assert_allclose(buffer.own, 3e38 * 0.0625 * group.size, rtol=1e-6)


def ranges_of_a_buffer_may_be_under_way_together(group):
    buffer = group.buffer(1000, np.float32)
    buffer.own[:] = group.rank + 1
    starts = np.random.default_rng(group.rank).permutation(10) * 100
    handles = [
        group.allreduce_buffer(buffer, f"part.{start}", Reduction.SUM, start=start, stop=start + 100)
        for start in starts.tolist()
    ]
    for handle in handles:
        handle.wait()
    assert (buffer.own == sum(range(1, group.size + 1))).all()


def joined_ranks_do_not_touch_their_buffers(group):
    for dtype, op in (
        ("float32", Reduction.SUM),
        ("float64", Reduction.AVERAGE),
        ("float32", Reduction.MAX),
        ("int64", Reduction.SUM),
    ):
        buffer = group.buffer(5000, dtype)
        buffer.own[:] = 2 * group.size
        run(group, "barrier", "all have written")
        if group.rank > 0 or group.size == 1:
            group.allreduce_buffer(buffer, "some", op).wait()
            givers = max(group.size - 1, 1)
            factor = {Reduction.SUM: givers, Reduction.AVERAGE: givers / group.size, Reduction.MAX: 1}[op]
            np.testing.assert_allclose(buffer.own, 2 * group.size * factor)
        run(group, "join", "join")
        if group.rank == 0 and group.size > 1:
            assert (buffer.own == 2 * group.size).all()


def ranges_that_differ_are_refused(group):
    buffer = group.buffer(100, np.float32)
    if group.size > 1:
        handle = group.allreduce_buffer(buffer, "range", stop=50 if group.rank else 60)
        assert "elements 0 to 50 of buffer" in expect_error(handle.wait, "do not fit together")
    still_works(group)


def buffers_of_different_length_are_refused(group):
    if group.size > 1:
        expect_error(lambda: group.buffer(10 + group.rank, np.float32), "do not fit together", ValueError)
        expect_error(lambda: group.buffer(10, "float32" if group.rank else "float64"), "float64 of shape (10,)")
    expect_error(lambda: group.buffer(10, object), "holds Python objects", CollectiveError)
    still_works(group)


CHECKS = [
    buffers_are_scaled_before_the_sum,
    ranks_may_submit_in_any_order,
    one_rank_may_be_ahead_while_all_pass_a_barrier,
    a_request_finishes_although_nobody_waits_for_it,
    threads_may_submit_and_wait_at_the_same_time,
    a_name_twice_in_flight_is_refused,
    a_name_stays_taken_until_the_program_has_noticed_its_end,
    names_are_any_text,
    default_names_count_per_kind,
    default_names_fit_again_after_ranks_have_joined_unevenly,
    join_gives_zeros_for_ranks_that_have_run_out,
    the_last_to_join_is_the_same_everywhere,
    only_allreduces_and_barriers_work_while_a_rank_has_joined,
    a_joined_rank_takes_part_in_adasum,
    buffers_are_reduced_in_place,
    ranges_of_a_buffer_may_be_under_way_together,
    joined_ranks_do_not_touch_their_buffers,
    ranges_that_differ_are_refused,
    buffers_of_different_length_are_refused,
]
