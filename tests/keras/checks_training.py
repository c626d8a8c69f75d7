"""Training on ranks against training alone on the joined batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras_common import (
    BATCH,
    QUICK,
    broadcasting,
    digest,
    distance,
    joined,
    make_data,
    make_model,
    of_rank_0,
    state_digest,
    train_alone,
)

import ringlet.keras as hvd
from ringlet.keras.optimizer import exchange_of

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.05, weight_decay=0.01),
}


def check_fit_equals_training_alone(job: SimpleNamespace) -> dict[str, Any]:
    """Ranks begin with different weights; rank 0's count."""
    x, y = make_data(8 * BATCH * job.size)
    results = {}
    for name, make in OPTIMIZERS.items():
        model, alone = make_model(), make_model()
        start = of_rank_0(model.get_weights())
        model.compile(hvd.DistributedOptimizer(make()), "mse")
        own_x, own_y = hvd.shard(x, y)
        model.fit(own_x, own_y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=broadcasting())
        expected = train_alone(
            alone, start, make(), joined(x, job.size), joined(y, job.size), BATCH * job.size, epochs=2
        )
        results[name] = {
            "digest": state_digest(model),
            "distance": distance(model.get_weights(), expected),
            "moved": distance(start, expected),
            "num_exchanges": exchange_of(model.optimizer).num_exchanges,
            "is_plain_class": type(model.optimizer) is type(make()),
        }
    return results


def check_options(job: SimpleNamespace) -> dict[str, Any]:
    """One step each with another way to exchange: the change of the weights relative to the plain one."""
    x, y = make_data(BATCH * job.size)
    own_x, own_y = hvd.shard(x, y)
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "sum": {"op": hvd.Sum},
        "predivide": {"gradient_predivide_factor": 4.0},
        "fp16": {"compression": hvd.Compression.fp16},
        "bf16": {"compression": hvd.Compression.bf16},
        "named": {"name": "mine", "num_groups": 2, "sparse_as_dense": True, "device_dense": "/cpu:0"},
    }
    moves, digests = {}, {}
    for name, chosen in options.items():
        model = make_model(seed=1)
        before = model.get_weights()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **chosen), "mse", run_eagerly=True)
        model.train_on_batch(own_x, own_y)
        moves[name] = [after - old for after, old in zip(model.get_weights(), before, strict=True)]
        digests[name] = digest(model.get_weights())
    plain = moves["plain"]
    scale = max(float(np.abs(move).max()) for move in plain)
    return {
        "digests": digests,
        "scale": scale,
        "distances": {name: distance(move, plain) for name, move in moves.items()},
        "sum_from_double": distance(moves["sum"], [job.size * move for move in plain]),
    }


def check_one_call(job: SimpleNamespace) -> dict[str, Any]:
    """distribute(model): statistics of normalisation, metrics, validation and progress."""
    keras.utils.set_random_seed(3 + job.rank)  # known weights, so that three epochs are known to improve them
    layers = [keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2, seed=job.rank)]
    model = keras.Sequential([keras.layers.Input((6,)), *layers, keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    same = hvd.distribute(model)
    x, y = make_data(12 * BATCH * job.size)
    own_x, own_y = hvd.shard(x, y)
    history = model.fit(own_x, own_y, BATCH, epochs=3, verbose=0, validation_data=hvd.shard(*make_data(20, seed=5)))
    seeds = [keras.ops.convert_to_numpy(v).tolist() for v in model.variables if "seed" in v.path]
    return {
        "is_same": same is model,
        "digest": state_digest(model),
        "history": {name: [float(value) for value in values] for name, values in history.history.items()},
        "seeds": seeds,
        "moving_mean": float(np.abs(keras.ops.convert_to_numpy(model.layers[1].moving_mean)).max()),
    }


def check_model_without_weights(job: SimpleNamespace) -> dict[str, Any]:
    """A model that is built by its first step gets rank 0's weights after it; several steps in one call."""
    several = {} if job.backend == "torch" else {"steps_per_execution": 3}
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    results = {}
    for name, batch_size in (("some_steps", BATCH), ("one_step", 4 * BATCH)):
        model = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(3)])
        model.compile(keras.optimizers.Adam(0.01), "mse", **several)
        hvd.distribute(model)
        model.fit(x, y, batch_size, verbose=0, validation_data=(x, y))
        results[name] = [state_digest(model), int(keras.ops.convert_to_numpy(model.optimizer.iterations))]
    return results


def check_distribute_after_training_alone(job: SimpleNamespace) -> dict[str, Any]:
    """What was traced without the exchange must not be used again; nor after another compile."""
    model = make_model()
    x, y = make_data(2 * BATCH * job.size)
    own_x, own_y = hvd.shard(x, y)
    model.compile("sgd", "mse")
    model.fit(own_x, own_y, BATCH, verbose=0)
    alone = digest(model.get_weights())
    hvd.distribute(model)
    model.fit(own_x, own_y, BATCH, verbose=0)
    together = digest(model.get_weights())
    model.compile("adam", "mse", **QUICK)
    model.fit(own_x, own_y, BATCH, verbose=0)
    return {"alone": alone, "together": together, "compiled_again": state_digest(model)}
