"""Variables, objects and elastic states."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import ringlet.tensorflow as hvd


def check_variables_of_every_dtype() -> None:
    forms = (tf.float32, tf.float64, tf.bfloat16, tf.int64, tf.bool)
    variables = [tf.Variable(tf.cast(tf.fill([2], hvd.rank()), dtype)) for dtype in forms]
    assert hvd.broadcast_variables(variables, root_rank=1) is None
    assert [int(variable[0]) for variable in variables] == [1] * len(forms)
    other = tf.Variable(float(hvd.rank()))
    values = tf.function(lambda: hvd.broadcast_([other], 1, name="other"))()
    assert (float(values[0]), float(other)) == (1.0, 1.0)
    hvd.broadcast_variables([], root_rank=0)


def check_objects() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank(), 0: [1, 2]}, root_rank=1) == {"rank": 1, 0: [1, 2]}
    assert hvd.broadcast_object_fn(1, name="object")(hvd.rank()) == 1
    assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": rank} for rank in range(hvd.size())]


def check_a_state_of_variables() -> None:
    variables = [tf.Variable(np.full((2, 2), 1.0 + hvd.rank())), tf.Variable([hvd.rank()])]
    state = hvd.elastic.TensorFlowState(variables, batch=20 + hvd.rank(), losses=[])
    state.sync()
    assert (float(variables[0][0, 0]), int(variables[1][0]), state.batch) == (1.0, 0, 20)
    variables[0].assign([[2.0] * 2] * 2)
    state.batch = 21
    state.losses.append(0.5)
    state.restore()
    assert (float(variables[0][0, 0]), state.batch, state.losses) == (1.0, 20, [])
    variables[0].assign([[2.0] * 2] * 2)
    state.losses.append(0.5)
    state.commit()
    state.losses.append(0.25)
    state.restore()
    assert (float(variables[0][0, 0]), state.losses) == (2.0, [0.5])


def check_a_model_without_weights_has_no_state() -> None:
    import keras

    with pytest.raises(ValueError, match="has no weights yet"):
        hvd.elastic.TensorFlowKerasState(keras.Sequential([keras.layers.Dense(1)]), batch=0)
