"""Every named operation against NumPy."""

from __future__ import annotations

import numpy as np
from named_common import DTYPES, dtype_of, expected_reduction, run, same, submit, values

from ringlet.comm.arrays import part
from ringlet.named import Engine, Reduction
from ringlet.named.adasum import is_power_of_two

OPS = (Reduction.AVERAGE, Reduction.SUM, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT)


def all_values(engine: Engine, shape, dtype=np.float32, seed=0):
    return [values(rank, shape, dtype, seed) for rank in range(engine.size)]


def allreduce_combines_every_dtype_by_every_op(engine):
    expected = []
    for dtype in map(dtype_of, DTYPES):
        for op in OPS:
            if dtype.kind == "b" and op is Reduction.AVERAGE:
                continue
            if dtype.kind == "c" and op in (Reduction.MIN, Reduction.MAX):
                continue
            stack = all_values(engine, (3, 5), dtype)
            pending = submit(
                engine, "allreduce", f"{dtype.name}.{op.value}", stack[engine.rank], op=op, background=False
            )
            expected.append((pending, expected_reduction(stack, op)))
    for pending, wanted in expected:
        [result] = pending.wait()
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result.astype(np.complex128), wanted.astype(np.complex128), rtol=2e-7)


def scales_multiply_before_and_after(engine):
    for dtype in map(dtype_of, ("float16", "bfloat16", "float32", "float64", "int32", "uint8", "complex64")):
        for op in (Reduction.SUM, Reduction.AVERAGE, Reduction.MAX):
            if dtype.kind == "c" and op is Reduction.MAX:
                continue
            stack = all_values(engine, (7,), dtype)
            [result] = run(engine, "allreduce", "scaled", stack[engine.rank] * 4, op=op, prescale=0.5, postscale=4.0)
            expected = expected_reduction([each * 4 for each in stack], op, 0.5, 4.0)
            np.testing.assert_allclose(result.astype(np.complex128), expected.astype(np.complex128), rtol=1e-2)
            assert result.dtype == dtype


def the_average_of_whole_numbers_is_cut_towards_zero(engine):
    stack = [np.array([-7, 7, -128, -1, rank, -rank], np.int16) for rank in range(engine.size)]
    [result] = run(engine, "allreduce", "cut", stack[engine.rank], op=Reduction.AVERAGE)
    same(result, np.trunc(np.sum(stack, axis=0) / engine.size).astype(np.int16))
    if engine.size == 2:
        least = np.array([-128 if engine.rank else 0], np.int8)
        same(run(engine, "allreduce", "least", least)[0], np.array([-64], np.int8))


def results_go_where_they_are_wanted(engine):
    stack = all_values(engine, (4, 6))
    for outputs in ("input", "other", "strided", "new"):
        own = stack[engine.rank].copy()
        wide = np.zeros((4, 12), np.float32)
        out = {"input": own, "other": np.zeros((4, 6), np.float32), "strided": wide[:, ::2], "new": None}[outputs]
        [result] = run(engine, "allreduce", outputs, own, outputs=None if out is None else (out,), op=Reduction.SUM)
        assert (result is out) == (out is not None)
        same(result, np.sum(stack, axis=0))
        if outputs != "input":
            same(own, stack[engine.rank])
        assert not wide[:, 1::2].any()


def inputs_may_have_any_layout(engine):
    stack = all_values(engine, (4, 6, 5))
    own = stack[engine.rank]
    layouts = (
        np.asfortranarray(own),
        np.repeat(own, 2, axis=1)[:, ::2],
        own.transpose(2, 0, 1).copy().transpose(1, 2, 0),
    )
    for place, array in enumerate(layouts):
        for kind in ("allreduce", "broadcast", "allgather"):
            [result] = run(engine, kind, f"layout.{place}.{kind}", array, op=Reduction.SUM)
            expected = {"allreduce": np.sum(stack, axis=0), "broadcast": stack[0], "allgather": np.concatenate(stack)}
            same(result, expected[kind])


def shapes_may_be_empty_single_or_large(engine):
    for shape in ((), (0,), (3, 0, 2), (1,), (300_001,)):
        stack = all_values(engine, shape)
        [result] = run(engine, "allreduce", f"shape{len(shape)}", stack[engine.rank], op=Reduction.SUM)
        same(result, np.sum(stack, axis=0, dtype=np.float32))
        [result] = run(engine, "broadcast", f"of shape{len(shape)}", stack[engine.rank], root=engine.size - 1)
        same(result, stack[-1])


def a_group_runs_together(engine):
    shapes = ((3,), (), (70_000,), (2, 2), (0,))
    stacks = [all_values(engine, shape, dtype, place) for place, (shape, dtype) in enumerate(
        zip(shapes, ("float32", "float32", "float32", "float64", "int32"), strict=True))]  # fmt: skip
    own = [stack[engine.rank].copy() for stack in stacks]
    results = run(engine, "allreduce", "group", *own, outputs=tuple(own), op=Reduction.SUM)
    for result, stack, array in zip(results, stacks, own, strict=True):
        assert result is array
        same(result, np.sum(stack, axis=0, dtype=array.dtype))
    for kind in ("allgather", "reducescatter", "broadcast"):
        pair = [all_values(engine, (5, 2), np.float64, seed) for seed in (8, 9)]
        results = run(engine, kind, f"group {kind}", *[stack[engine.rank] for stack in pair], op=Reduction.SUM)
        start, stop = part(5, engine.rank, engine.size)
        for result, stack in zip(results, pair, strict=True):
            expected = {
                "allgather": np.concatenate(stack), "broadcast": stack[0], "reducescatter": sum(stack)[start:stop],
            }  # fmt: skip
            same(result, expected[kind])
    assert run(engine, "allreduce", "empty group") == []


def many_small_ones_at_once_are_all_right(engine):
    """More than a record holds, of several dtypes and recipes."""
    names = [f"many.{number}" for number in range(300)]
    kinds = [("float32", Reduction.SUM), ("float64", Reduction.SUM), ("float32", Reduction.AVERAGE)]
    stacks = [all_values(engine, (number % 7,), kinds[number % 3][0], number) for number in range(len(names))]
    for _ in range(2):  # new to all, then known to all
        pendings = [
            submit(engine, "allreduce", name, stacks[number][engine.rank], op=kinds[number % 3][1], background=False)
            for number, name in enumerate(names)
        ]
        for number, pending in enumerate(pendings):
            same(pending.wait()[0], expected_reduction(stacks[number], kinds[number % 3][1]))


def allgather_takes_uneven_rows(engine):
    stack = [values(rank, (rank * 2 % 5, 3), np.int16) for rank in range(engine.size)]
    for _ in range(2):
        [result] = run(engine, "allgather", "rows", stack[engine.rank])
        same(result, np.concatenate(stack))
    texts = np.array([f"rank {engine.rank}"], "U8")
    assert run(engine, "allgather", "texts", texts)[0].tolist() == [f"rank {rank}" for rank in range(engine.size)]


def broadcast_takes_any_root(engine):
    for root in range(engine.size):
        own = values(engine.rank, (4, 2), np.float64)
        [result] = run(engine, "broadcast", "root", own, outputs=(own,), root=engine.ranks[root])
        assert result is own
        same(result, values(root, (4, 2), np.float64))


def alltoall_exchanges_rows(engine):
    size, rank = engine.size, engine.rank
    [rows, received] = run(engine, "alltoall", "equal", np.arange(2 * size) + 100 * rank)
    same(rows, np.concatenate([np.arange(2 * rank, 2 * rank + 2) + 100 * other for other in range(size)]))
    assert received.tolist() == [2] * size
    splits = tuple((rank + other) % 3 for other in range(size))
    own = values(rank, (sum(splits), 2))
    [rows, received] = run(engine, "alltoall", "uneven", own, splits=splits)
    sent = []
    for other in range(size):
        theirs = [(other + target) % 3 for target in range(size)]
        start = sum(theirs[:rank])
        sent.append(values(other, (sum(theirs), 2))[start : start + theirs[rank]])
    same(rows, np.concatenate(sent))
    assert received.tolist() == [len(piece) for piece in sent]


def reducescatter_gives_the_remainder_to_the_lowest_ranks(engine):
    for dtype, op in (("float32", Reduction.AVERAGE), ("int32", Reduction.SUM), ("int32", Reduction.AVERAGE)):
        stack = all_values(engine, (7, 3), dtype)
        [result] = run(engine, "reducescatter", f"{dtype} {op.value}", stack[engine.rank], op=op)
        start, stop = part(7, engine.rank, engine.size)
        same(result, expected_reduction(stack, op)[start:stop])
    stack = all_values(engine, (5,), np.float64)
    [result] = run(engine, "reducescatter", "scaled", stack[engine.rank], op=Reduction.SUM, prescale=0.5, postscale=4.0)
    same(result, (2 * sum(stack))[slice(*part(5, engine.rank, engine.size))])


def a_barrier_has_no_result(engine):
    assert run(engine, "barrier", "barrier") == []


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


def adasum_follows_its_formula(engine):
    if not is_power_of_two(engine.size):
        return
    shapes = ((4, 3), (501,), (), (1,))
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2)):
        stacks = [
            [np.random.default_rng([rank, place]).normal(size=shape).astype(dtype) for rank in range(engine.size)]
            for place, shape in enumerate(shapes)
        ]
        stacks[3][0][:] = 0  # a vector without direction
        own = [stack[engine.rank] for stack in stacks]
        results = run(engine, "allreduce", f"adasum {dtype}", *own, op=Reduction.ADASUM, postscale=2.0)
        for result, stack in zip(results, stacks, strict=True):
            expected = 2 * plain_adasum([each.astype(np.float64) for each in stack])
            np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
            assert result.dtype == np.dtype(dtype)
        [same_everywhere] = run(engine, "allgather", f"bits {dtype}", results[1][None])
        assert (same_everywhere == same_everywhere[0]).all()


def adasum_of_orthogonal_gradients_is_their_sum_and_of_equal_ones_their_mean(engine):
    if not is_power_of_two(engine.size):
        return
    own = np.zeros(engine.size)
    own[engine.rank] = engine.rank + 1.0
    [result] = run(engine, "allreduce", "orthogonal", own, op=Reduction.ADASUM)
    np.testing.assert_allclose(result, np.arange(1.0, engine.size + 1))
    [result] = run(engine, "allreduce", "equal", np.array([3.0, 4.0]), op=Reduction.ADASUM)
    np.testing.assert_allclose(result, [3.0, 4.0])


CHECKS = [
    allreduce_combines_every_dtype_by_every_op,
    scales_multiply_before_and_after,
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
