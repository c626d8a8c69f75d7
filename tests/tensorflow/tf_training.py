"""Tapes, optimizers and layers that train together, and what ranks outside of their process set do."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ringlet.keras as keras_hvd
import ringlet.tensorflow as hvd
from ringlet.named import session


def _digests(variables: Any) -> list[Any]:
    return hvd.allgather_object([np.asarray(variable).tolist() for variable in variables])


def _tape(variables: list[Any], **options: Any) -> list[Any]:
    with tf.GradientTape() as plain:
        loss = tf.add_n([tf.reduce_sum(variable) for variable in variables]) * (hvd.rank() + 1.0)
    return hvd.DistributedGradientTape(plain, **options).gradient(loss, variables)


def check_gradients_of_a_tape() -> None:
    variables, average = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)], (hvd.size() + 1) / 2
    unused = tf.Variable([1.0])
    first, second = _tape(variables)
    np.testing.assert_allclose(first, [average] * 2)
    np.testing.assert_allclose(second, average)
    assert _tape(variables, op=hvd.Sum)[1] == average * hvd.size()
    assert _tape(variables, gradient_predivide_factor=4.0, compression=hvd.Compression.fp16)[1] == average
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = variables[0][0] * (hvd.rank() + 1.0)
    assert tape.gradient(loss, [unused])[0].numpy().tolist() == [0.0]
    assert float(tape.gradient(loss, variables[0])[0]) == average
    with pytest.raises(ValueError, match="expected Average, Sum or Adasum"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Min)


def check_sparse_gradients_of_a_tape() -> None:
    table = tf.Variable(tf.ones([4, 2]))
    for sparse_as_dense in (False, True):
        with tf.GradientTape() as plain:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank()]))
        tape = hvd.DistributedGradientTape(plain, sparse_as_dense=sparse_as_dense, op=hvd.Sum)
        (found,) = tape.gradient(loss, [table])
        assert isinstance(found, tf.IndexedSlices) is not sparse_as_dense
        np.testing.assert_allclose(tf.convert_to_tensor(found), [[float(row < hvd.size())] * 2 for row in range(4)])


def check_ranks_outside_of_a_process_set_keep_their_gradients() -> None:
    first = session.process_sets()[1]
    (found,) = _tape([tf.Variable([1.0])], process_set=first)
    assert found.numpy().tolist() == [hvd.rank() + 1.0]
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    layer.build((1, 1))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=first)
    optimizer.apply_gradients([(tf.constant([[hvd.rank() + 1.0]]), layer.kernel)])
    assert float(layer.kernel[0, 0]) == -hvd.rank()


def check_local_layers_keep_their_gradients() -> None:
    local = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    shared = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    for layer in (local, shared):
        layer.build((1, 1))
    own, size, average = hvd.rank() + 1.0, hvd.size(), (hvd.size() + 1) / 2
    for scale in (True, False):
        with tf.GradientTape() as plain:
            loss = (local.kernel[0, 0] + shared.kernel[0, 0]) * own
        tape = hvd.PartialDistributedGradientTape(plain, local_layers=local, scale_local_gradients=scale)
        found = tape.gradient(loss, [local.kernel, shared.kernel])
        np.testing.assert_allclose([float(each[0, 0]) for each in found], [own / size if scale else own, average])
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=[local])
    gradients = [tf.constant([[own]]), tf.constant([[own]])]
    optimizer.apply_gradients(zip(gradients, [local.kernel, shared.kernel], strict=True))
    np.testing.assert_allclose(
        [float(layer.kernel[0, 0]) for layer in (local, shared)], [1 - own / size, 1 - average], rtol=1e-6
    )
    with pytest.raises(ValueError, match="has no weights yet"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[keras.layers.Dense(1)])


def check_a_loop_of_ones_own() -> None:
    """As Horovod's examples for TensorFlow 2 train: variables are broadcast within the first step."""
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def step(x: tf.Tensor, first: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

    for number in range(3):
        step(tf.random.stateless_uniform([4, 3], [number, hvd.rank()]), number == 0)
    states = _digests([*model.variables, *optimizer.variables])
    assert all(state == states[0] for state in states)


def check_adasum_of_gradients() -> None:
    """Of two gradients without anything in common it is the sum, of two equal ones the average."""
    if hvd.size() != 2:
        with pytest.raises(tf.errors.InvalidArgumentError, match="power of two"):
            _tape([tf.Variable([1.0, 1.0])], op=hvd.Adasum)
        return
    one, other = tf.Variable([1.0, 1.0]), tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Adasum)
    gradients = [tf.constant([1.0 - hvd.rank(), float(hvd.rank())]), tf.constant([2.0])]
    optimizer.apply_gradients(zip(gradients, [one, other], strict=True))
    np.testing.assert_allclose(one, [0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(other, [-1.0], atol=1e-6)


def check_batch_normalisation_over_all_ranks() -> None:
    data = np.random.default_rng(0).normal(2.0, 3.0, (2 * hvd.size() + 1, 4)).astype("float32")
    start, stop = 2 * hvd.rank(), 2 * hvd.rank() + (3 if hvd.rank() == hvd.size() - 1 else 2)
    alone, together = keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    inputs, part = tf.constant(data), tf.constant(data[start:stop])
    weight = tf.constant(np.random.default_rng(1).normal(size=data.shape).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([inputs, part])
        expected = alone(inputs, training=True)
        found = together(part, training=True)
        losses = tf.reduce_sum(expected * weight), tf.reduce_sum(found * weight[start:stop])
    np.testing.assert_allclose(found, expected[start:stop], atol=1e-5)
    np.testing.assert_allclose(together.moving_variance, alone.moving_variance, rtol=1e-5)
    gradient = tape.gradient(losses[1], part)
    np.testing.assert_allclose(gradient, tape.gradient(losses[0], inputs)[start:stop], atol=1e-4)
    with pytest.raises(ValueError, match="cannot be fused"):
        hvd.SyncBatchNormalization(fused=True)


def check_optimizers_that_are_not_of_keras_3_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one of Keras 3; .*DistributedGradientTape"):
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))


def check_local_variables_are_not_broadcast() -> None:
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse", run_eagerly=True)
    kernel, bias = model.layers[0].kernel, model.layers[0].bias
    kernel.assign([[float(hvd.rank())]])
    bias.assign([float(hvd.rank())])
    callback = keras_hvd.callbacks.BroadcastGlobalVariablesCallback(1, local_variables=[bias])
    model.fit(np.zeros((1, 1)), np.zeros((1, 1)), callbacks=[callback], verbose=0)
    assert (float(kernel[0, 0]), float(bias[0])) == (1.0, hvd.rank())
