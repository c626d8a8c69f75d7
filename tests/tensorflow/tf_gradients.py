"""Gradients through collectives, against what they are by hand; eager and inside of ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import ringlet.tensorflow as hvd

Function = Callable[[tf.Tensor], tf.Tensor]


def gradient(function: Function, value: tf.Tensor, weight: tf.Tensor | float = 1.0) -> list[np.ndarray]:
    """Of the sum of ``weight`` times what the function gives: computed eagerly, and in a graph."""

    def compute(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x) * weight
        return tape.gradient(y, x)

    return [np.asarray(compute(value)), np.asarray(tf.function(compute)(value))]


def expect(function: Function, value: tf.Tensor, expected: object, weight: tf.Tensor | float = 1.0) -> None:
    for found in gradient(function, value, weight):
        np.testing.assert_allclose(found, np.broadcast_to(expected, value.shape), rtol=1e-6)


def check_of_reductions() -> None:
    size, own = hvd.size(), tf.fill([2, 3], hvd.rank() + 1.0)
    weight = hvd.rank() + 1.0
    weights = sum(rank + 1 for rank in range(size))
    expect(lambda x: hvd.allreduce(x, op=hvd.Sum), own, weights, weight)
    expect(lambda x: hvd.allreduce(x), own, weights / size, weight)
    expect(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), own, 6 * weights, weight)
    expect(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1], own, 2 * weights, weight)
    expect(lambda x: hvd.allreduce(x, op=hvd.Max), own, weights if hvd.rank() == size - 1 else 0, weight)
    others = np.prod([rank + 1.0 for rank in range(size) if rank != hvd.rank()])
    expect(lambda x: hvd.allreduce(x, op=hvd.Product), own, others * weights, weight)
    expect(lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.ones([size, 2]), size)


def check_of_gathering() -> None:
    """The average of what ranks want of this rank's rows."""
    size, own = hvd.size(), tf.ones([hvd.rank() + 1, 2], tf.float64)
    rows = [row for rank in range(size) for row in [10.0 * rank] * (rank + 1)]
    weight = tf.cast(tf.reshape(rows, [-1, 1]) + hvd.rank(), tf.float64)
    expect(lambda x: hvd.allgather(x), own, 10.0 * hvd.rank() + (size - 1) / 2, weight)
    expect(lambda x: hvd.grouped_allgather([x, x[:1]])[0], own, 10.0 * hvd.rank() + (size - 1) / 2, weight)


def check_of_a_broadcast() -> None:
    average = (hvd.size() - 1) / 2
    expect(lambda x: hvd.broadcast(x, 1), tf.ones([3]), average if hvd.rank() == 1 else 0, float(hvd.rank()))


def check_of_an_alltoall() -> None:
    """Every row comes back with the weight of the rank that it was sent to."""
    expected = np.arange(1.0, hvd.size() + 1)
    expect(lambda x: hvd.alltoall(x), tf.ones([hvd.size()]), expected, hvd.rank() + 1.0)
    splits = [2] + [1] * (hvd.size() - 1)
    expect(lambda x: hvd.alltoall(x, splits)[0], tf.ones([sum(splits)]), np.repeat(expected, splits), hvd.rank() + 1.0)


def check_of_variables_and_sparse_use() -> None:
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(hvd.allreduce(table, op=hvd.Sum), [hvd.rank()]))
    found = tf.convert_to_tensor(tape.gradient(loss, table))
    np.testing.assert_allclose(found, [[float(row < hvd.size())] * 2 for row in range(4)])
