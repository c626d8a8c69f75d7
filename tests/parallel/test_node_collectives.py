"""Collectives through shared memory against NumPy: random dtypes, shapes and operations, for both kinds of channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from threading import Thread
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threads import Crew

from ringlet import kernels
from ringlet.comm.channel import layout, reference
from ringlet.comm.contract import Op
from ringlet.comm.memory import create_segment
from ringlet.data.partition import bounds
from ringlet.errors import CommunicationError, RankFailedError

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
HALVES = ["float16", "bfloat16"]
REDUCIBLE = [*INTEGERS, *HALVES, "bool", "float32", "float64", "longdouble", "complex64", "complex128", ">f4", ">i2"]
MOVABLE = [*REDUCIBLE, "datetime64[ns]", "S7", "U3", "i4,f8"]
# Few bytes (one round), several chunks, and around the limits of blocks, parts and slots.
NUM_ELEMENTS = (0, 1, 3, 64, 129, 1000, 4097, 40_000, layout.SLOT_BYTES // 4 + 1, 200_003)
UFUNCS = {Op.SUM: np.add, Op.AVERAGE: np.add, Op.MIN: np.minimum, Op.MAX: np.maximum, Op.PRODUCT: np.multiply}

some_examples = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CREWS = [(size, [name] * size) for size in (1, 2, 3, 4) for name in kernels.available()]
if len(kernels.available()) > 1:
    CREWS += [(2, ["compiled", "reference"]), (3, ["reference", "compiled", "compiled"])]


def crew_name(crew: tuple[int, list[str]]) -> str:
    return f"{crew[0]}-{'-'.join(sorted(set(crew[1])))}"


@pytest.fixture(scope="module", params=CREWS, ids=crew_name)
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    crew = Crew(*request.param)
    yield crew
    crew.close()


@pytest.fixture(scope="module", params=[crew for crew in CREWS if crew[0] > 1], ids=crew_name)
def several(request: pytest.FixtureRequest) -> Iterator[Crew]:
    crew = Crew(*request.param)
    yield crew
    crew.close()


def values(rank: int, shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, rank])
    wanted = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if wanted.kind in "fc" or dtype == "bfloat16":
        numbers: Any = rng.normal(0, 3, shape)
        return np.asarray(numbers + 1j * rng.normal(0, 3, shape) if wanted.kind == "c" else numbers).astype(wanted)
    if wanted.names is not None:
        return np.asarray(rng.integers(0, 100, shape)).astype(wanted)
    return np.asarray(rng.integers(0, 2 if dtype == "bool" else 100, shape)).astype(wanted)


def combined(arrays: list[np.ndarray], op: Op) -> np.ndarray:
    """In the order of ranks; 16-bit floating point in float32."""
    dtype = arrays[0].dtype
    wide = np.float32 if dtype.name in HALVES else dtype.newbyteorder("=")
    total = arrays[0].astype(wide)
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            total = UFUNCS[op](total, array.astype(wide))
        if op is Op.AVERAGE:
            total = np.asarray(total / np.asarray(len(arrays), np.real(total).dtype), wide)
    return total.astype(dtype)


def assert_same(actual: np.ndarray, expected: np.ndarray, *, exact: bool = True) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if exact:
        assert np.array_equal(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays).astype(arrays[0].dtype)  # which NumPy gives in native byte order


def is_exact(dtype: str, op: Op) -> bool:
    """NumPy itself multiplies and divides complex numbers with other bits, depending on their number."""
    return not dtype.startswith("complex") or op not in (Op.PRODUCT, Op.AVERAGE)


reductions = {
    "dtype": st.sampled_from(REDUCIBLE),
    "op": st.sampled_from(list(Op)),
    "count": st.sampled_from(NUM_ELEMENTS),
    "seed": st.integers(0, 9),
}


@given(**reductions, in_place=st.booleans())
@some_examples
def test_allreduce(crew, dtype, op, count, seed, in_place):
    if op is Op.AVERAGE and np.dtype(values(0, (0,), dtype).dtype).kind in "biu":
        op = Op.SUM
    inputs = [values(rank, (count,), dtype, seed) for rank in range(crew.size)]
    expected = combined(inputs, op)

    def reduce(communicator):
        own = inputs[communicator.rank].copy()
        return communicator.allreduce(own, op, out=own if in_place else None)

    results = crew.run(reduce)
    for result in results:
        assert_same(result, expected, exact=is_exact(dtype, op))
        assert np.array_equal(result, results[0]), "the same bits on every rank"


@given(**reductions, columns=st.integers(1, 3))
@some_examples
def test_reduce_scatter(crew, dtype, op, count, seed, columns):
    if op is Op.AVERAGE and np.dtype(values(0, (0,), dtype).dtype).kind in "biu":
        op = Op.MAX
    inputs = [values(rank, (count // columns, columns), dtype, seed) for rank in range(crew.size)]
    expected = combined(inputs, op)
    results = crew.run(lambda communicator: communicator.reduce_scatter(inputs[communicator.rank], op))
    for rank, result in enumerate(results):
        first, last = bounds(count // columns, rank, crew.size)
        assert_same(result, expected[first:last], exact=is_exact(dtype, op))


@given(dtype=st.sampled_from(MOVABLE), count=st.sampled_from(NUM_ELEMENTS), root=st.integers(0, 3))
@some_examples
def test_broadcast(crew, dtype, count, root):
    root %= crew.size
    expected = values(root, (count,), dtype)
    for result in crew.run(
        lambda communicator: communicator.broadcast(values(communicator.rank, (count,), dtype), root)
    ):
        assert_same(result, expected)


@given(dtype=st.sampled_from(MOVABLE), data=st.data())
@some_examples
def test_allgather_of_uneven_rows(crew, dtype, data):
    rows = [data.draw(st.sampled_from(NUM_ELEMENTS)) // 2 for _ in range(crew.size)]
    inputs = [values(rank, (count, 2), dtype) for rank, count in enumerate(rows)]
    for result in crew.run(lambda communicator: communicator.allgather(inputs[communicator.rank])):
        assert_same(result, joined(inputs))


@given(dtype=st.sampled_from(MOVABLE), data=st.data())
@some_examples
def test_alltoall(crew, dtype, data):
    choices = st.sampled_from([0, 1, 5, 1000, 30_000])
    splits = [[data.draw(choices) for _ in range(crew.size)] for _ in range(crew.size)]
    inputs = [values(rank, (sum(splits[rank]),), dtype) for rank in range(crew.size)]
    results = crew.run(lambda communicator: communicator.alltoall(inputs[communicator.rank], splits[communicator.rank]))
    for rank, (received, counts) in enumerate(results):
        starts = [sum(splits[source][:rank]) for source in range(crew.size)]
        parts = [inputs[source][start : start + splits[source][rank]] for source, start in enumerate(starts)]
        assert_same(received, joined(parts))
        assert counts.tolist() == [splits[source][rank] for source in range(crew.size)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_is_not_a_number_stays_so(crew, dtype):
    inputs = [values(rank, (9,), dtype) for rank in range(crew.size)]
    inputs[-1][3] = np.nan
    inputs[0][5] = np.inf
    for op in Op:
        for result in crew.run(lambda communicator, op=op: communicator.allreduce(inputs[communicator.rank], op)):
            with np.errstate(all="ignore"):
                assert np.array_equal(np.isnan(result.astype(np.float64)), np.arange(9) == 3)


@pytest.mark.parametrize("dtype", HALVES)
def test_sixteen_bits_are_rounded_once(crew, dtype):
    """One and many halves of its last digit: rounding after every addition would lose all of them."""
    tiny = 2.0**-11 if dtype == "float16" else 2.0**-8
    parts = [1.0] + [tiny] * (crew.size - 1)
    name = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    expected = np.array([np.float32(sum(parts))]).astype(name)
    for result in crew.run(lambda communicator: communicator.allreduce(np.array([parts[communicator.rank]], name))):
        assert_same(result, expected)


@pytest.mark.parametrize("length", [65536, 7], ids=["vectors", "single elements"])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_sixteen_bit_value_survives_alone(dtype, length):
    """Widening and rounding give each of the 65,536 values back: subnormal, infinite and signed zero included."""
    crew = Crew(1)
    every = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    pieces = [crew.communicators[0].allreduce(every[start : start + length]) for start in range(0, 65536, length)]
    crew.close()
    result = np.concatenate(pieces)
    with np.errstate(all="ignore"):
        numbers = ~np.isnan(every.astype(np.float32))
        assert np.isnan(result[~numbers].astype(np.float32)).all()
    assert np.array_equal(result[numbers].view(np.uint16), every[numbers].view(np.uint16))


def test_strided_arrays_and_single_values(crew):
    total = crew.size * (crew.size + 1) / 2

    def reduce(communicator):
        block = np.full((6, 8), communicator.rank + 1.0)
        target = np.zeros((8, 6))
        communicator.allreduce(block.T, out=target)
        strided = np.zeros((3, 4, 2))
        communicator.allreduce(block[::2, 1::2], out=strided[:, :, 1])
        single = communicator.allreduce(np.array(communicator.rank + 1.0))
        return target, strided, single

    for target, strided, single in crew.run(reduce):
        assert (target == total).all()
        assert (strided[:, :, 1] == total).all()
        assert not strided[:, :, 0].any()
        assert single.shape == ()
        assert single == total


DISAGREEMENTS = {
    "shape": lambda c: c.allreduce(np.zeros(3 + (c.rank == c.size - 1))),
    "axes": lambda c: c.allreduce(np.zeros((2, 3) if c.rank else (3, 2))),
    "dtype": lambda c: c.allreduce(np.zeros(3, "f4" if c.rank else "i4")),
    "byte order": lambda c: c.broadcast(np.zeros(3, "<f4" if c.rank else ">f4")),
    "operation": lambda c: c.allreduce(np.zeros(3), Op.SUM if c.rank else Op.MAX),
    "collective": lambda c: c.barrier() if c.rank else c.allreduce(np.zeros(100_000)),
    "large collective": lambda c: c.broadcast(np.zeros(90_000)) if c.rank else c.allgather(np.zeros(90_000)),
    "root": lambda c: c.broadcast(np.zeros(3), root=min(c.rank, 1)),
    "row": lambda c: c.allgather(np.zeros((3, 1 + (c.rank == 0)))),
    "group": lambda c: c.group([0, 1] if c.rank else [1, 0]),
    "shared array": lambda c: c.shared_array(4 + (c.rank == 0), "f4"),
    "refusal": lambda c: c.allreduce(np.zeros(3, "f4" if c.rank else "i4"), Op.AVERAGE),
    "splits": lambda c: c.alltoall(np.zeros(c.size), None if c.rank else [0] * c.size),
    "out": lambda c: c.allreduce(np.zeros(3), out=np.zeros(3 if c.rank else 4)),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_disagree_all_get_an_error_and_can_go_on(several, what):
    for outcome in several.run(DISAGREEMENTS[what]):
        assert isinstance(outcome, CommunicationError)
        assert "rank 0 called" in str(outcome)
        assert any(f"rank {rank} called" in str(outcome) for rank in range(1, several.size))
    assert (
        several.run(lambda communicator: communicator.allreduce(np.ones(50_000)).sum())
        == [50_000.0 * several.size] * several.size
    )


def test_what_all_ranks_ask_wrongly_is_refused_on_all_and_all_can_go_on(crew):
    for outcome in crew.run(lambda communicator: communicator.allreduce(np.zeros(3, "i4"), Op.AVERAGE)):
        assert isinstance(outcome, CommunicationError)
        assert "average" in str(outcome)
    for outcome in crew.run(lambda communicator: communicator.broadcast(np.array([None]))):
        assert "objects" in str(outcome)
    assert crew.run(lambda communicator: communicator.barrier()) == [None] * crew.size


def test_started_and_called_collectives_run_beside_each_other(crew):
    def work(communicator):
        handles = [communicator.start("allreduce", np.full(50_000, float(number))) for number in range(4)]
        called = [float(communicator.allreduce(np.array([number]))[0]) for number in range(20)]
        return called, [float(handle.wait()[0]) for handle in handles]

    expected = ([float(number * crew.size) for number in range(20)], [float(n * crew.size) for n in range(4)])
    assert crew.run(work) == [expected] * crew.size


Watch = Callable[[int, int], None]
BARRIER = layout.signature("barrier()")


@pytest.fixture(params=kernels.available())
def make_ends(request: pytest.FixtureRequest) -> Callable[[list[Watch]], list[Any]]:
    """Bare channels of two ranks that do not spin, each with its own way to watch."""
    module = "ringlet.kernels._native" if request.param == "compiled" else reference.__name__
    memory = create_segment(layout.channel_bytes(2)).buffer

    def make(watches: list[Watch]) -> list[Any]:
        channel_class: Any = import_module(module).Channel
        return [channel_class(memory, rank, 2, layout.slot_bytes(2), 0, 0, watch) for rank, watch in enumerate(watches)]

    return make


def test_a_collective_inside_another_one_is_refused(make_ends):
    """As two threads would call them; here it is what the first one does while it waits."""
    outcomes: list[str] = []
    peers: list[Thread] = []

    def interfere(peer: int, failed: int) -> None:
        if not peers:
            with pytest.raises(CommunicationError, match="two threads") as caught:
                ends[0].barrier(BARRIER)
            outcomes.append(str(caught.value))
            peers.append(Thread(target=ends[1].barrier, args=(BARRIER,)))
            peers[0].start()

    ends = make_ends([interfere, interfere])
    assert ends[0].barrier(BARRIER) == -1
    peers[0].join(60)
    assert len(outcomes) == 1


def test_a_rank_that_leaves_a_wait_by_an_exception_ends_the_waiting_of_the_others(make_ends):
    def leave(peer: int, failed: int) -> None:
        raise KeyboardInterrupt

    def hear(peer: int, failed: int) -> None:
        raise RankFailedError(f"rank {failed}")

    ends = make_ends([leave, hear])
    with pytest.raises(KeyboardInterrupt):
        ends[0].barrier(BARRIER)
    assert [end.failed() for end in ends] == [0, 0]
    for _ in range(2):  # for good
        with pytest.raises(RankFailedError, match="rank 0"):
            ends[1].barrier(BARRIER)
