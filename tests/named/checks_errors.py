"""Requests that do not fit together, or make no sense: all ranks get the error, and the next operation works."""

from __future__ import annotations

import numpy as np
from named_common import expect_error, run, still_works, submit

from ringlet.named import CollectiveError, Reduction

SUM = {"op": Reduction.SUM}


def disagree(group, words, first, second):
    """Rank 0 submits ``first``, the others ``second`` (kind, array, options); a process alone has nobody to quarrel."""
    kind, array, options = first if group.rank == 0 else second
    if group.size > 1:
        handle = submit(group, kind, "disagreed", array, **options)
        message = expect_error(handle.wait, "the ranks' requests do not fit together: rank 0 submitted", ValueError)
        assert isinstance(handle._error, CollectiveError)
        assert isinstance(handle._error, RuntimeError)
        assert f"; rank {group.ranks[-1]} submitted" in message
        for text in words:
            assert text in message, (text, message)
    still_works(group)


def shapes_that_differ_raise_everywhere(group):
    disagree(
        group, ["shape (2, 3)", "shape (3, 2)"],
        ("allreduce", np.zeros((2, 3)), SUM), ("allreduce", np.zeros((3, 2)), SUM),
    )  # fmt: skip
    disagree(group, ["shape (3,)", "shape ()"], ("broadcast", np.zeros(3), {}), ("broadcast", np.zeros(()), {}))
    disagree(
        group, ["shape (2,)", "shape (3,)"],
        ("allgather", np.zeros((4, 2)), {}), ("allgather", np.zeros((4, 3)), {}),
    )  # fmt: skip
    disagree(
        group, ["shape (4, 1)", "shape (3, 1)"],
        ("reducescatter", np.zeros((4, 1)), SUM), ("reducescatter", np.zeros((3, 1)), SUM),
    )  # fmt: skip


def dtypes_that_differ_raise_everywhere(group):
    for kind in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        row = np.zeros((group.size, 2))
        disagree(group, ["float64", "int32"], (kind, row, SUM), (kind, row.astype(np.int32), SUM))


def operations_that_differ_raise_everywhere(group):
    own = np.zeros(group.size)
    disagree(group, ["op sum", "op max"], ("allreduce", own, SUM), ("allreduce", own, {"op": Reduction.MAX}))
    disagree(group, ["allreduce of", "allgather of"], ("allreduce", own, SUM), ("allgather", own, {}))


def scales_and_roots_that_differ_raise_everywhere(group):
    own = np.zeros(group.size)
    disagree(
        group, ["scaled by 0.5 before and 1 after"],
        ("allreduce", own, {**SUM, "prescale": 0.5}), ("allreduce", own, {**SUM, "prescale": 0.25}),
    )  # fmt: skip
    disagree(
        group, ["scaled by 1 before and 0.5 after"],
        ("allreduce", own, SUM), ("allreduce", own, {**SUM, "postscale": 0.5}),
    )  # fmt: skip
    last = {"root": group.ranks[-1]}
    disagree(
        group,
        [f"root {group.ranks[-1]}"],
        ("broadcast", own, {"root": group.ranks[0]}),
        ("broadcast", own, last),
    )


def groups_that_differ_raise_everywhere(group):
    if group.size > 1:
        arrays = [np.zeros(2)] * (2 + (group.rank > 0))
        expect_error(submit(group, "allreduce", "groups", *arrays).wait, "do not fit together", ValueError)
        expect_error(submit(group, "allreduce", "large group", *(arrays * 10)).wait, "and 12 more", ValueError)
    still_works(group)


def refuse_on_rank(group, words, kind, *inputs, **options):
    """One rank's arguments make no sense; the others' do, and they learn who and why."""
    culprit = group.size - 1
    good = np.zeros((group.size, 2), np.float32)
    if group.rank == culprit:
        handle = submit(group, kind, "refused", *inputs, **options)
    else:
        handle = submit(group, kind, "refused", good)
    message = expect_error(handle.wait, words, ValueError)
    assert f"rank {group.ranks[culprit]} cannot do it" in message
    still_works(group)


def arguments_of_one_rank_that_make_no_sense_raise_everywhere(group):
    flags, whole, good = np.zeros(2, bool), np.zeros(2, np.int64), np.zeros((group.size, 2), np.float32)
    locked = np.zeros(2)
    locked.flags.writeable = False
    refuse_on_rank(group, "booleans have no average", "allreduce", flags)
    refuse_on_rank(group, "booleans have no average and no scale", "allreduce", flags, op=Reduction.SUM, prescale=2.0)
    refuse_on_rank(group, "expected finite numbers", "allreduce", good, prescale=float("nan"))
    refuse_on_rank(group, "cannot be combined", "allreduce", np.array(["a"]))
    refuse_on_rank(group, "holds Python objects", "allgather", np.array([None]))
    refuse_on_rank(group, "works along axis 0", "allgather", np.zeros(()))
    refuse_on_rank(group, "works along axis 0", "alltoall", np.zeros(()))
    refuse_on_rank(group, "works along axis 0", "reducescatter", np.zeros(()))
    refuse_on_rank(group, "Adasum needs whole arrays", "reducescatter", good, op=Reduction.ADASUM)
    refuse_on_rank(group, "Adasum of dtype int64", "allreduce", whole, op=Reduction.ADASUM)
    refuse_on_rank(group, "root 99 is not in the process set", "broadcast", good, root=99)
    refuse_on_rank(group, "do not fit: expected", "alltoall", good, splits=(group.size + 1,))
    refuse_on_rank(group, "do not fit: expected", "alltoall", good, splits=(-1,) * group.size)
    refuse_on_rank(group, "out has shape (3,)", "allreduce", good[0], outputs=(np.zeros(3, np.float32),))
    refuse_on_rank(group, "out cannot be written", "allreduce", locked, outputs=(locked,))
    refuse_on_rank(group, "1 outputs for 1 inputs of allgather", "allgather", good, outputs=(good,))
    refuse_on_rank(group, "2 outputs for 1 inputs", "allreduce", good, outputs=(good, good))
    if group.size > 1:
        refuse_on_rank(group, "cannot be cut into equal parts", "alltoall", np.zeros(group.size + 1))


def adasum_needs_a_power_of_two(group):
    if group.size == 3:
        expect_error(
            lambda: run(group, "allreduce", "adasum", np.ones(2), op=Reduction.ADASUM),
            "expected a power of two",
            ValueError,
        )
    still_works(group)


def an_error_leaves_other_requests_alone(group):
    if group.size == 1:
        return
    before = submit(group, "allreduce", "before", np.ones(2), op=Reduction.SUM)
    wrong = submit(group, "allreduce", "wrong", np.ones(2 + group.rank), op=Reduction.SUM)
    after = submit(group, "allreduce", "after", np.ones(2), op=Reduction.SUM)
    assert before.wait()[0].tolist() == after.wait()[0].tolist() == [group.size] * 2
    for _ in range(2):
        expect_error(wrong.wait, "do not fit together")


CHECKS = [
    shapes_that_differ_raise_everywhere,
    dtypes_that_differ_raise_everywhere,
    operations_that_differ_raise_everywhere,
    scales_and_roots_that_differ_raise_everywhere,
    groups_that_differ_raise_everywhere,
    arguments_of_one_rank_that_make_no_sense_raise_everywhere,
    adasum_needs_a_power_of_two,
    an_error_leaves_other_requests_alone,
]
