"""Checks of allreduce and reduce_scatter: every rank knows what all ranks put in and computes the answer with NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from checks_common import NUMBERS, expect_error, values

from ringlet.comm.contract import Communicator, Op

FUNCTIONS: dict[Op, Callable[..., Any]] = {
    Op.SUM: np.add.reduce,
    Op.AVERAGE: np.mean,
    Op.MIN: np.minimum.reduce,
    Op.MAX: np.maximum.reduce,
    Op.PRODUCT: np.multiply.reduce,
}
HALVES = ("float16", "bfloat16")


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def expected(parts: list[Any], op: Op, dtype: np.dtype[Any]) -> Any:
    """What NumPy makes of all ranks' arrays; 16-bit numbers are combined in float64 and rounded once."""
    wide = np.dtype(np.float64) if dtype.name in HALVES else dtype
    stacked = np.stack([part.astype(wide) for part in parts])
    options = {} if op in (Op.MIN, Op.MAX) else {"dtype": wide}
    return FUNCTIONS[op](stacked, axis=0, **options).astype(dtype)


def check_close(actual: Any, wanted: Any, op: Op) -> None:
    """Equal to the bit; only an average of a number of ranks that is no power of two may round differently."""
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    if op is Op.AVERAGE:
        epsilon = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "complex64": 1e-6}.get(actual.dtype.name, 1e-15)
        np.testing.assert_allclose(
            actual.astype(np.clongdouble), wanted.astype(np.clongdouble), rtol=epsilon, atol=epsilon
        )
    else:
        np.testing.assert_array_equal(actual, wanted)


def allreduce_of(name: str) -> Callable[[Communicator], None]:
    """Every operation on one dtype, with small numbers, whose results are exact in any order."""

    def check(comm: Communicator) -> None:
        dtype = dtype_of(name)
        for op in Op:
            if op is Op.AVERAGE and dtype.kind in "biu":
                continue
            parts = [values(rank, (6, 5), dtype) for rank in range(comm.size)]
            check_close(comm.allreduce(parts[comm.rank], op), expected(parts, op, dtype), op)

    return check


def reduce_scatter_of(name: str) -> Callable[[Communicator], None]:
    """Rows that do not divide evenly, and fewer rows than ranks."""

    def check(comm: Communicator) -> None:
        dtype = dtype_of(name)
        for op in Op:
            if op is Op.AVERAGE and dtype.kind in "biu":
                continue
            for rows in (7, 2, 0):
                parts = [values(rank, (rows, 3), dtype) for rank in range(comm.size)]
                mine = np.array_split(expected(parts, op, dtype), comm.size)[comm.rank]
                check_close(comm.reduce_scatter(parts[comm.rank], op), mine, op)

    return check


def allreduce_of_any_shape(comm: Communicator) -> None:
    for shape in ((), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4)):
        for dtype in ("float32", "float16", "int16", "complex128"):
            parts = [values(rank, shape, np.dtype(dtype)) for rank in range(comm.size)]
            result = comm.allreduce(parts[comm.rank])
            assert result.shape == shape
            np.testing.assert_array_equal(result, sum(parts[1:], parts[0]))


def allreduce_of_strided_arrays(comm: Communicator) -> None:
    for dtype in ("float64", "float16"):
        parts = [values(rank, (6, 8), np.dtype(dtype)) for rank in range(comm.size)]
        total = sum(parts[1:], parts[0])
        np.testing.assert_array_equal(comm.allreduce(parts[comm.rank].T), total.T)
        np.testing.assert_array_equal(comm.allreduce(parts[comm.rank][::2, 1::3]), total[::2, 1::3])
        np.testing.assert_array_equal(comm.allreduce(parts[comm.rank][::-1]), total[::-1])


def allreduce_of_foreign_byte_order(comm: Communicator) -> None:
    parts = [values(rank, (9,), np.dtype(">f4")) for rank in range(comm.size)]
    np.testing.assert_array_equal(comm.allreduce(parts[comm.rank]), sum(parts[1:], parts[0]))


def allreduce_into_out(comm: Communicator) -> None:
    for dtype in ("float32", "float16", "uint8", "complex64"):
        parts = [values(rank, (4, 6), np.dtype(dtype)) for rank in range(comm.size)]
        total = sum(parts[1:], parts[0])
        mine = parts[comm.rank].copy()
        out = np.empty_like(mine)
        assert comm.allreduce(mine, out=out) is out
        np.testing.assert_array_equal(out, total)
        np.testing.assert_array_equal(mine, parts[comm.rank])
        wide = np.zeros((4, 12), dtype)
        comm.allreduce(mine, out=wide[:, ::2])
        np.testing.assert_array_equal(wide[:, ::2], total)
        assert not wide[:, 1::2].any()
        assert comm.allreduce(mine, out=mine) is mine
        np.testing.assert_array_equal(mine, total)


def allreduce_refuses_wrong_out(comm: Communicator) -> None:
    array = np.ones(4, np.float32)
    expect_error(lambda: comm.allreduce(array, out=np.ones(5, np.float32)), "shape")
    expect_error(lambda: comm.allreduce(array, out=np.ones(4, np.float64)), "float64")
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    expect_error(lambda: comm.allreduce(array, out=frozen), "writ")


def allreduce_of_read_only_arrays(comm: Communicator) -> None:
    array = np.arange(5.0)
    array.flags.writeable = False
    np.testing.assert_array_equal(comm.allreduce(array), np.arange(5.0) * comm.size)
    np.testing.assert_array_equal(comm.broadcast(array, comm.size - 1), array)


def results_are_new_arrays(comm: Communicator) -> None:
    array = np.ones(3)
    for result in (comm.allreduce(array), comm.broadcast(array), comm.allgather(array), comm.reduce_scatter(array)):
        assert not np.shares_memory(result, array)
        assert result.flags.writeable


def large_arrays(comm: Communicator) -> None:
    """Longer than any buffer on the way, of odd length."""
    for dtype, count in (("float32", 3_000_001), ("float16", 1_000_003), ("int64", 500_009)):
        base = np.arange(count) % 97
        parts_sum = base * comm.size + sum(range(comm.size))
        result = comm.allreduce((base + comm.rank).astype(dtype))
        np.testing.assert_array_equal(result, parts_sum.astype(dtype))
        mine = np.array_split(parts_sum.astype(dtype), comm.size)[comm.rank]
        np.testing.assert_array_equal(comm.reduce_scatter((base + comm.rank).astype(dtype)), mine)


def whole_numbers_wrap_around(comm: Communicator) -> None:
    result = comm.allreduce(np.full(3, 200, np.uint8))
    np.testing.assert_array_equal(result, np.full(3, 200 * comm.size % 256, np.uint8))


def same_bits_on_all_ranks(comm: Communicator) -> None:
    """Numbers whose sum depends on the order: all ranks must still agree to the last bit."""
    for dtype in ("float16", "float32", "float64", "complex64"):
        for count in (1, 3, 1000, 100_001):
            random = np.random.default_rng([comm.rank, count])
            array = (random.standard_normal(count) * 10.0 ** random.integers(-3, 4, count)).astype(dtype)
            for op in (Op.SUM, Op.AVERAGE, Op.PRODUCT):
                digest = hashlib.sha256(comm.allreduce(array, op).tobytes()).digest()
                assert len(set(comm.allgather_bytes(digest))) == 1, f"{dtype}, {count} elements, {op.value}"


def sums_are_accurate(comm: Communicator) -> None:
    for dtype, epsilon in (("float32", 1e-6), ("float64", 1e-14)):
        parts = [np.random.default_rng(rank).standard_normal(10_007).astype(dtype) for rank in range(comm.size)]
        exact = np.sum([part.astype(np.longdouble) for part in parts], axis=0)
        np.testing.assert_allclose(comm.allreduce(parts[comm.rank]), exact, rtol=0, atol=epsilon * 4)
        np.testing.assert_allclose(
            comm.allreduce(parts[comm.rank], Op.AVERAGE), exact / comm.size, rtol=0, atol=epsilon * 4
        )


def halves_are_accumulated_in_float32(name: str) -> Callable[[Communicator], None]:
    """Sums that 16 bits cannot hold on the way: one large and many small, an average beyond the range, exact sums."""

    def check(comm: Communicator) -> None:
        dtype = dtype_of(name)
        large = 2048 if name == "float16" else 256  # where the next number is two further
        array = np.full(5, large if comm.rank == 0 else 1, dtype)
        wanted = np.float32(large + comm.size - 1).astype(dtype)
        np.testing.assert_array_equal(comm.allreduce(array), np.full(5, wanted))
        rows = np.repeat(array[:1], comm.size)
        np.testing.assert_array_equal(comm.reduce_scatter(rows), np.full(1, wanted))
        limit = np.full(5, ml_dtypes.finfo(dtype).max, dtype)
        if name == "float16":
            np.testing.assert_array_equal(comm.allreduce(limit, Op.AVERAGE), limit)
        steps = [np.random.default_rng([7, rank]).integers(-100, 101, 4099) / 64 for rank in range(comm.size)]
        parts = [step.astype(dtype) for step in steps]
        exact = np.sum([part.astype(np.float32) for part in parts], axis=0)  # multiples of 1/64: exact in any order
        np.testing.assert_array_equal(comm.allreduce(parts[comm.rank]), exact.astype(dtype))

    return check


def minimum_and_maximum_pass_on_nan(comm: Communicator) -> None:
    for dtype in ("float32", "float64", "float16"):
        array = np.array([1.0, comm.rank, -comm.rank], dtype)
        if comm.rank == comm.size - 1:
            array[0] = np.nan
        for op, rest in ((Op.MIN, [0, 1 - comm.size]), (Op.MAX, [comm.size - 1, 0])):
            result = comm.allreduce(array, op)
            assert np.isnan(result[0])
            np.testing.assert_array_equal(result[1:], np.array(rest, dtype))


def infinities_pass(comm: Communicator) -> None:
    array = np.array([np.inf, 1.0, -np.inf]) if comm.rank == 0 else np.ones(3)
    np.testing.assert_array_equal(comm.allreduce(array), np.array([np.inf, comm.size, -np.inf]))


def averages_of_whole_numbers_are_refused(comm: Communicator) -> None:
    for dtype in ("int32", "uint8", "bool"):
        expect_error(lambda dtype=dtype: comm.allreduce(np.ones(3, dtype), Op.AVERAGE), "average")
        expect_error(lambda dtype=dtype: comm.reduce_scatter(np.ones(3, dtype), Op.AVERAGE), "average")


def what_is_no_number_is_refused(comm: Communicator) -> None:
    for array in (np.array(["a"]), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, "i4,f4"), np.array([None])):
        expect_error(lambda array=array: comm.allreduce(array), "")
    expect_error(lambda: comm.broadcast(np.array([None])), "object")
    expect_error(lambda: comm.reduce_scatter(np.array(3.0)), "axis")
    expect_error(lambda: comm.allgather(np.array(3.0)), "axis")


def random_reductions(comm: Communicator) -> None:
    """Shapes, dtypes and operations drawn by a generator that is the same on all ranks."""
    random = np.random.default_rng(20)
    for _ in range(60):
        dtype = dtype_of(str(random.choice(NUMBERS)))
        shape = tuple(int(length) for length in random.integers(0, 9, random.integers(1, 4)))
        op = Op(random.choice([op.value for op in Op if op is not Op.AVERAGE]))
        seed = int(random.integers(1 << 30))
        parts = [values(rank, shape, dtype, seed) for rank in range(comm.size)]
        wanted = expected(parts, op, dtype)
        check_close(comm.allreduce(parts[comm.rank], op), wanted, op)
        check_close(comm.reduce_scatter(parts[comm.rank], op), np.array_split(wanted, comm.size)[comm.rank], op)


CHECKS: dict[str, Callable[[Communicator], None]] = {
    **{f"allreduce_of_{name}": allreduce_of(name) for name in NUMBERS},
    **{f"reduce_scatter_of_{name}": reduce_scatter_of(name) for name in NUMBERS},
    **{f"{name}_is_accumulated_in_float32": halves_are_accumulated_in_float32(name) for name in HALVES},
    **{
        check.__name__: check
        for check in (
            allreduce_of_any_shape,
            allreduce_of_strided_arrays,
            allreduce_of_foreign_byte_order,
            allreduce_into_out,
            allreduce_refuses_wrong_out,
            allreduce_of_read_only_arrays,
            results_are_new_arrays,
            large_arrays,
            whole_numbers_wrap_around,
            same_bits_on_all_ranks,
            sums_are_accurate,
            minimum_and_maximum_pass_on_nan,
            infinities_pass,
            averages_of_whole_numbers_are_refused,
            what_is_no_number_is_refused,
            random_reductions,
        )
    },
}
