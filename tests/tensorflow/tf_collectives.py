"""Values of collectives on tensors: eager, inside of ``tf.function``, sparse, in process sets; and their errors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import ringlet.tensorflow as hvd
from ringlet.named import session

RANKS = session.collectives().ranks
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
WHOLE = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64)


def of_rank(rank: int, shape: tuple[int, ...] = (3, 2), dtype: tf.DType = tf.float32) -> tf.Tensor:
    values = np.arange(np.prod(shape)).reshape(shape) % 5 + rank
    return tf.cast(tf.constant(values), dtype)


def total(shape: tuple[int, ...] = (3, 2)) -> np.ndarray:
    return sum(of_rank(rank, shape).numpy() for rank in RANKS)


def expect(tensor: tf.Tensor, values: object) -> None:
    np.testing.assert_allclose(np.asarray(tf.cast(tensor, tf.float64)), np.asarray(values, np.float64), rtol=1e-2)


def check_reductions_of_every_dtype() -> None:
    for dtype in (*FLOATS, *WHOLE):
        summed = hvd.allreduce(of_rank(hvd.rank(), dtype=dtype), op=hvd.Sum)
        assert summed.dtype is dtype
        expect(summed, total())
        expect(hvd.allreduce(of_rank(hvd.rank(), dtype=dtype), op=hvd.Max), of_rank(hvd.size() - 1))
    expect(hvd.allreduce(tf.constant(hvd.rank() == 0), op=hvd.Max), True)


def check_the_second_argument_is_the_old_average() -> None:
    with pytest.warns(DeprecationWarning, match="average"):
        expect(hvd.allreduce(of_rank(hvd.rank()), False), total())
    with pytest.raises(ValueError, match="op alone"):
        hvd.allreduce(of_rank(0), average=True, op=hvd.Sum)


def check_factors_come_before_and_after_the_sum() -> None:
    large = hvd.allreduce(tf.constant([3e38]), op=hvd.Sum, prescale_factor=0.125, postscale_factor=0.5)
    np.testing.assert_allclose(large, [3e38 * 0.0625 * hvd.size()], rtol=1e-6)
    whole = hvd.allreduce(tf.constant([7]), op=hvd.Sum, prescale_factor=0.5)
    expect(whole, [3 * hvd.size()])


def check_compression() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(of_rank(hvd.rank()), op=hvd.Sum, compression=compression)
        assert result.dtype is tf.float32
        expect(result, total())
    assert hvd.Compression.fp16.compress(tf.ones([2]))[0].dtype is tf.float16
    assert hvd.Compression.fp16.compress(tf.constant([1]))[0].dtype is tf.int32


def check_gathering_and_scattering() -> None:
    own = of_rank(hvd.rank(), (hvd.rank() + 1, 2))
    expect(hvd.allgather(own), np.concatenate([of_rank(rank, (rank + 1, 2)) for rank in RANKS]))
    first, second = hvd.grouped_allgather([own, tf.constant([hvd.rank()])])
    assert (len(first), second.numpy().tolist()) == (sum(rank + 1 for rank in RANKS), list(RANKS))
    shape = (hvd.size() + 1, 2)
    start = 0 if hvd.rank() == 0 else hvd.rank() + 1
    expected = total(shape)[start : start + (2 if hvd.rank() == 0 else 1)]
    expect(hvd.reducescatter(of_rank(hvd.rank(), shape), op=hvd.Sum), expected)
    both = hvd.grouped_reducescatter([of_rank(hvd.rank(), shape)] * 2, op=hvd.Average)
    expect(both[1], expected / hvd.size())


def check_all_to_all() -> None:
    expect(hvd.alltoall(tf.range(hvd.size()) + 10 * hvd.rank()), [10 * rank + hvd.rank() for rank in RANKS])
    splits = [1 + hvd.rank()] * hvd.size()
    rows, received = hvd.alltoall(tf.fill([sum(splits)], hvd.rank()), splits)
    expect(rows, np.repeat(RANKS, [rank + 1 for rank in RANKS]))
    assert received.numpy().tolist() == [rank + 1 for rank in RANKS]


def check_everything_inside_of_a_function() -> None:
    @tf.function
    def inside(x: tf.Tensor) -> dict[str, tf.Tensor]:
        rows, received = hvd.alltoall(x, tf.ones([hvd.size()], tf.int32))
        return {
            "allreduce": hvd.allreduce(x, op=hvd.Sum),
            "grouped": hvd.grouped_allreduce([x, x], op=hvd.Sum)[1],
            "allgather": hvd.allgather(x),
            "broadcast": hvd.broadcast(x, 1),
            "rows": rows,
            "received": received,
            "reducescatter": hvd.reducescatter(x, op=hvd.Sum),
            "place": tf.stack([hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]),
        }

    shape = (hvd.size(), 2)
    for _ in range(2):  # traced, and run again
        found = inside(of_rank(hvd.rank(), shape))
    expect(found["allreduce"], total(shape))
    expect(found["grouped"], total(shape))
    expect(found["allgather"], np.concatenate([of_rank(rank, shape) for rank in RANKS]))
    expect(found["broadcast"], of_rank(1, shape))
    expect(found["rows"], [of_rank(rank, shape)[hvd.rank()] for rank in RANKS])
    expect(found["received"], [1] * hvd.size())
    expect(found["reducescatter"], total(shape)[hvd.rank()][None])
    assert found["place"].numpy().tolist() == [hvd.rank(), hvd.size(), hvd.rank(), hvd.size()]


def check_xla_says_what_to_do() -> None:
    compiled = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="so_use_jit_compile_False"):
        compiled(tf.ones([2]))


def check_sparse_tensors_stay_sparse() -> None:
    own = tf.IndexedSlices(tf.fill([1, 2], hvd.rank() + 1.0), tf.constant([hvd.rank() % 2]))
    for op, factor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        result, dense = hvd.grouped_allreduce([own, tf.ones([2])], op=op)
        assert isinstance(result, tf.IndexedSlices)
        assert result.dense_shape is None
        expect(result.values, [[(rank + 1) / factor] * 2 for rank in RANKS])
        expect(result.indices, [rank % 2 for rank in RANKS])
        expect(dense, [hvd.size() / factor] * 2)
    with pytest.raises(NotImplementedError, match="expected Average or Sum"):
        hvd.allreduce(own, op=hvd.Max)


def check_errors_are_of_tensorflows_kinds() -> None:
    uneven = of_rank(0, (2 + hvd.rank() % 2, 2))
    with pytest.raises(tf.errors.FailedPreconditionError, match="do not fit together"):
        hvd.allreduce(uneven)
    with pytest.raises(tf.errors.FailedPreconditionError, match="do not fit together"):
        hvd.allgather(tf.ones([2], tf.int32 if hvd.rank() % 2 else tf.float32))
    with pytest.raises(tf.errors.FailedPreconditionError, match="root"):
        hvd.broadcast(tf.ones([2]), hvd.rank())
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot"):
        hvd.alltoall(tf.ones([hvd.size() + 1]))
    with pytest.raises(ValueError, match="fit together"):
        hvd.allreduce(uneven)
    with pytest.raises(tf.errors.InvalidArgumentError, match="fit together"):
        tf.function(hvd.allreduce)(uneven)
    expect(hvd.allreduce(tf.ones([1])), [1])


def check_process_sets() -> None:
    first = session.process_sets()[1]
    assert int(hvd.size_op(first.process_set_id)) == 1
    assert int(hvd.process_set_included_op(first.process_set_id)) == int(hvd.rank() == 0)
    assert int(hvd.process_set_included_op(77)) == -2
    if first.included():
        expect(hvd.allreduce(tf.ones([2]), op=hvd.Sum, process_set=first), [1, 1])
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="it is not one of its ranks"):
            hvd.allreduce(tf.ones([2]), process_set=first)


def check_the_last_rank_to_join() -> None:
    if hvd.rank() > 0:
        expect(hvd.allreduce(tf.ones([2]), op=hvd.Sum), [hvd.size() - 1] * 2)
    assert int(hvd.join()) in range(hvd.size())


def check_graphs_of_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        variable = tf.compat.v1.get_variable("v", initializer=float(hvd.rank()), use_resource=True)
        summed, gathered = hvd.allreduce(variable, op=hvd.Sum), hvd.allgather(tf.constant([hvd.rank()]))
        broadcast = hvd.broadcast_global_variables(1)
        sess.run(tf.compat.v1.global_variables_initializer())
        assert sess.run(summed) == sum(RANKS)
        assert sess.run(gathered).tolist() == list(RANKS)
        sess.run(broadcast)
        assert sess.run(variable) == 1.0
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)
