"""Every named operation against NumPy."""

from __future__ import annotations

import numpy as np
from named_common import DTYPES, dtype_of, expected_reduction, run, same, submit, values

from ringlet.comm.arrays import part
from ringlet.named import NamedCollectives, Reduction
from ringlet.named.reductions import is_power_of_two

OPS = (Reduction.AVERAGE, Reduction.SUM, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT)


def all_values(group: NamedCollectives, shape, dtype=np.float32, seed=0):
    return [values(rank, shape, dtype, seed) for rank in range(group.size)]


def allreduce_combines_every_dtype_by_every_op(group):
    expected = []
    for dtype in map(dtype_of, DTYPES):
        for op in OPS:
            if dtype.kind == "b" and op is Reduction.AVERAGE:
                continue
            if dtype.kind == "c" and op in (Reduction.MIN, Reduction.MAX):
                continue
            stack = all_values(group, (3, 5), dtype)
            handle = submit(group, "allreduce", f"{dtype.name}.{op.value}", stack[group.rank], op=op, background=False)
            expected.append((handle, expected_reduction(stack, op)))
    for handle, wanted in expected:
        [result] = handle.wait()
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result.astype(np.complex128), wanted.astype(np.complex128), rtol=2e-7)


def scales_multiply_before_and_after(group):
    for dtype in map(dtype_of, ("float16", "bfloat16", "float32", "float64", "int32", "uint8", "complex64")):
        for op in (Reduction.SUM, Reduction.AVERAGE, Reduction.MAX):
            if dtype.kind == "c" and op is Reduction.MAX:
                continue
            stack = all_values(group, (7,), dtype)
            [result] = run(group, "allreduce", "scaled", stack[group.rank] * 4, op=op, prescale=0.5, postscale=4.0)
            expected = expected_reduction([each * 4 for each in stack], op, 0.5, 4.0)
            np.testing.assert_allclose(result.astype(np.complex128), expected.astype(np.complex128), rtol=1e-2)
            assert result.dtype == dtype


def values_are_made_smaller_before_they_are_added_up(group):
    """Else their sum would be infinite."""
    for dtype, large in (("float32", 3e38), ("float64", 1.7e308)):
        for op, factor in ((Reduction.SUM, group.size), (Reduction.AVERAGE, 1)):
            for shape in ((2,), (20_000,)):  # that travels with others, and alone
                own = np.full(shape, large, dtype)
                [result] = run(group, "allreduce", "large", own, op=op, prescale=0.125, postscale=0.5)
                np.testing.assert_allclose(result, large * 0.0625 * factor, rtol=1e-6)


def the_average_of_whole_numbers_is_cut_towards_zero(group):
    stack = [np.array([-7, 7, -128, -1, rank, -rank], np.int16) for rank in range(group.size)]
    [result] = run(group, "allreduce", "cut", stack[group.rank], op=Reduction.AVERAGE)
    same(result, np.trunc(np.sum(stack, axis=0) / group.size).astype(np.int16))
    if group.size == 2:
        least = np.array([-128 if group.rank else 0], np.int8)
        same(run(group, "allreduce", "least", least)[0], np.array([-64], np.int8))


def results_go_where_they_are_wanted(group):
    stack = all_values(group, (4, 6))
    for outputs in ("input", "other", "strided", "new"):
        own = stack[group.rank].copy()
        wide = np.zeros((4, 12), np.float32)
        out = {"input": own, "other": np.zeros((4, 6), np.float32), "strided": wide[:, ::2], "new": None}[outputs]
        [result] = run(group, "allreduce", outputs, own, outputs=None if out is None else (out,), op=Reduction.SUM)
        assert (result is out) == (out is not None)
        same(result, np.sum(stack, axis=0))
        if outputs != "input":
            same(own, stack[group.rank])
        assert not wide[:, 1::2].any()


def inputs_may_have_any_layout(group):
    stack = all_values(group, (4, 6, 5))
    own = stack[group.rank]
    layouts = (
        np.asfortranarray(own),
        np.repeat(own, 2, axis=1)[:, ::2],
        own.transpose(2, 0, 1).copy().transpose(1, 2, 0),
    )
    for place, array in enumerate(layouts):
        for kind in ("allreduce", "broadcast", "allgather"):
            [result] = run(group, kind, f"layout.{place}.{kind}", array, op=Reduction.SUM)
            expected = {"allreduce": np.sum(stack, axis=0), "broadcast": stack[0], "allgather": np.concatenate(stack)}
            same(result, expected[kind])


def shapes_may_be_empty_single_or_large(group):
    for shape in ((), (0,), (3, 0, 2), (1,), (300_001,)):
        stack = all_values(group, shape)
        [result] = run(group, "allreduce", f"shape{len(shape)}", stack[group.rank], op=Reduction.SUM)
        same(result, np.sum(stack, axis=0, dtype=np.float32))
        [result] = run(group, "broadcast", f"of shape{len(shape)}", stack[group.rank], root=group.size - 1)
        same(result, stack[-1])


def a_group_runs_together(group):
    shapes = ((3,), (), (70_000,), (2, 2), (0,))
    stacks = [all_values(group, shape, dtype, place) for place, (shape, dtype) in enumerate(
        zip(shapes, ("float32", "float32", "float32", "float64", "int32"), strict=True))]  # fmt: skip
    own = [stack[group.rank].copy() for stack in stacks]
    results = run(group, "allreduce", "group", *own, outputs=tuple(own), op=Reduction.SUM)
    for result, stack, array in zip(results, stacks, own, strict=True):
        assert result is array
        same(result, np.sum(stack, axis=0, dtype=array.dtype))
    for kind in ("allgather", "reducescatter", "broadcast"):
        pair = [all_values(group, (5, 2), np.float64, seed) for seed in (8, 9)]
        results = run(group, kind, f"group {kind}", *[stack[group.rank] for stack in pair], op=Reduction.SUM)
        start, stop = part(5, group.rank, group.size)
        for result, stack in zip(results, pair, strict=True):
            expected = {
                "allgather": np.concatenate(stack), "broadcast": stack[0], "reducescatter": sum(stack)[start:stop],
            }  # fmt: skip
            same(result, expected[kind])
    assert run(group, "allreduce", "empty group") == []


def many_small_ones_at_once_are_all_right(group):
    """More than a record holds, of several dtypes and recipes."""
    names = [f"many.{number}" for number in range(300)]
    kinds = [("float32", Reduction.SUM), ("float64", Reduction.SUM), ("float32", Reduction.AVERAGE)]
    stacks = [all_values(group, (number % 7,), kinds[number % 3][0], number) for number in range(len(names))]
    for _ in range(2):  # new to all, then known to all
        handles = [
            submit(
                group,
                "allreduce",
                name,
                stacks[number][group.rank],
                op=kinds[number % 3][1],
                background=False,
            )
            for number, name in enumerate(names)
        ]
        for number, handle in enumerate(handles):
            same(handle.wait()[0], expected_reduction(stacks[number], kinds[number % 3][1]))


def allgather_takes_uneven_rows(group):
    stack = [values(rank, (rank * 2 % 5, 3), np.int16) for rank in range(group.size)]
    for _ in range(2):
        [result] = run(group, "allgather", "rows", stack[group.rank])
        same(result, np.concatenate(stack))
    texts = np.array([f"rank {group.rank}"], "U8")
    assert run(group, "allgather", "texts", texts)[0].tolist() == [f"rank {rank}" for rank in range(group.size)]


def broadcast_takes_any_root(group):
    for root in range(group.size):
        own = values(group.rank, (4, 2), np.float64)
        [result] = run(group, "broadcast", "root", own, outputs=(own,), root=group.ranks[root])
        assert result is own
        same(result, values(root, (4, 2), np.float64))


def alltoall_exchanges_rows(group):
    size, rank = group.size, group.rank
    [rows, received] = run(group, "alltoall", "equal", np.arange(2 * size) + 100 * rank)
    same(rows, np.concatenate([np.arange(2 * rank, 2 * rank + 2) + 100 * other for other in range(size)]))
    assert received.tolist() == [2] * size
    splits = tuple((rank + other) % 3 for other in range(size))
    own = values(rank, (sum(splits), 2))
    [rows, received] = run(group, "alltoall", "uneven", own, splits=splits)
    sent = []
    for other in range(size):
        theirs = [(other + target) % 3 for target in range(size)]
        start = sum(theirs[:rank])
        sent.append(values(other, (sum(theirs), 2))[start : start + theirs[rank]])
    same(rows, np.concatenate(sent))
    assert received.tolist() == [len(piece) for piece in sent]


def reducescatter_gives_the_remainder_to_the_lowest_ranks(group):
    for dtype, op in (("float32", Reduction.AVERAGE), ("int32", Reduction.SUM), ("int32", Reduction.AVERAGE)):
        stack = all_values(group, (7, 3), dtype)
        [result] = run(group, "reducescatter", f"{dtype} {op.value}", stack[group.rank], op=op)
        start, stop = part(7, group.rank, group.size)
        same(result, expected_reduction(stack, op)[start:stop])
    stack = all_values(group, (5,), np.float64)
    [result] = run(group, "reducescatter", "scaled", stack[group.rank], op=Reduction.SUM, prescale=0.5, postscale=4.0)
    same(result, (2 * sum(stack))[slice(*part(5, group.rank, group.size))])


def a_barrier_has_no_result(group):
    assert run(group, "barrier", "barrier") == []


def plain_adasum(stack):
    """Ranks 0 and 1, 2 and 3, … then the results."""
    if len(stack) == 1:
        return stack[0]
    pairs = []
    for a, b in zip(stack[::2], stack[1::2], strict=True):
        dot = float(np.vdot(a, b))
        weight_a = 1 - dot / (2 * float(np.vdot(a, a))) if a.any() else 1.0
        weight_b = 1 - dot / (2 * float(np.vdot(b, b))) if b.any() else 1.0
        pairs.append(weight_a * a + weight_b * b)
    return plain_adasum(pairs)


def adasum_follows_its_formula(group):
    if not is_power_of_two(group.size):
        return
    shapes = ((4, 3), (501,), (), (1,))
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2)):
        stacks = [
            [np.random.default_rng([rank, place]).normal(size=shape).astype(dtype) for rank in range(group.size)]
            for place, shape in enumerate(shapes)
        ]
        stacks[3][0][:] = 0  # a vector without direction
        own = [stack[group.rank] for stack in stacks]
        results = run(group, "allreduce", f"adasum {dtype}", *own, op=Reduction.ADASUM, postscale=2.0)
        for result, stack in zip(results, stacks, strict=True):
            expected = 2 * plain_adasum([each.astype(np.float64) for each in stack])
            np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
            assert result.dtype == np.dtype(dtype)
        [same_everywhere] = run(group, "allgather", f"bits {dtype}", results[1][None])
        assert (same_everywhere == same_everywhere[0]).all()


def adasum_of_orthogonal_gradients_is_their_sum_and_of_equal_ones_their_mean(group):
    if not is_power_of_two(group.size):
        return
    own = np.zeros(group.size)
    own[group.rank] = group.rank + 1.0
    [result] = run(group, "allreduce", "orthogonal", own, op=Reduction.ADASUM)
    np.testing.assert_allclose(result, np.arange(1.0, group.size + 1))
    [result] = run(group, "allreduce", "equal", np.array([3.0, 4.0]), op=Reduction.ADASUM)
    np.testing.assert_allclose(result, [3.0, 4.0])


CHECKS = [
    allreduce_combines_every_dtype_by_every_op,
    scales_multiply_before_and_after,
    values_are_made_smaller_before_they_are_added_up,
    the_average_of_whole_numbers_is_cut_towards_zero,
    results_go_where_they_are_wanted,
    inputs_may_have_any_layout,
    shapes_may_be_empty_single_or_large,
    a_group_runs_together,
    many_small_ones_at_once_are_all_right,
    allgather_takes_uneven_rows,
    broadcast_takes_any_root,
    alltoall_exchanges_rows,
    reducescatter_gives_the_remainder_to_the_lowest_ranks,
    a_barrier_has_no_result,
    adasum_follows_its_formula,
    adasum_of_orthogonal_gradients_is_their_sum_and_of_equal_ones_their_mean,
]
