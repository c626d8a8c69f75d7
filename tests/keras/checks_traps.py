"""The ways in which training on ranks goes wrong unnoticed, or hangs."""

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
    draw,
    joined,
    make_data,
    make_model,
    of_rank_0,
    state_digest,
    train_alone,
)

import ringlet.keras as hvd
from ringlet.keras.optimizer import exchange_of


def check_overflow_on_one_rank(job: SimpleNamespace) -> dict[str, Any]:
    """mixed_float16: rank 1's first batch overflows, so all must skip it. By the global policy and by the model's."""
    x, y = make_data(3 * BATCH * job.size)
    own_x, own_y = (np.array(part) for part in hvd.shard(x, y))
    if job.rank == 1:
        own_x[:BATCH] = 60000
    results = {}
    for name in ("global", "model"):
        if name == "global":
            keras.config.set_dtype_policy("mixed_float16")
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        keras.config.set_dtype_policy("float32")
        layers = [keras.layers.Dense(5, dtype="mixed_float16"), keras.layers.Dense(3, dtype="mixed_float16")]
        inputs = keras.Input((6,))
        model = keras.Model(inputs, layers[1](layers[0](inputs)))
        model.dtype_policy = keras.DTypePolicy("mixed_float16")
        draw(model, job.rank)
        model.compile(optimizer, "mse")
        model.fit(own_x, own_y, BATCH, shuffle=False, verbose=0, callbacks=broadcasting())
        scaling = model.optimizer
        results[name] = {
            "class": type(scaling).__name__,
            "inner_is_plain": exchange_of(scaling.inner_optimizer) is None,
            "digest": state_digest(model),
            "scale": float(keras.ops.convert_to_numpy(scaling.dynamic_scale)),
            "updates": int(keras.ops.convert_to_numpy(scaling.inner_optimizer.iterations)),
            "finite": bool(all(np.isfinite(weight).all() for weight in model.get_weights())),
        }
    return results


def check_gradient_accumulation(job: SimpleNamespace) -> dict[str, Any]:
    """Keras's own, and Horovod's backward_passes_per_step: one exchange for each window, the same as alone."""
    x, y = make_data(6 * BATCH * job.size)
    own_x, own_y = hvd.shard(x, y)
    results = {}
    for name in ("keras", "summed") if job.backend == "jax" else ("keras", "summed", "averaged"):
        own = {"gradient_accumulation_steps": 3} if name == "keras" else {}
        options = {} if name == "keras" else {"backward_passes_per_step": 3}
        options |= {"average_aggregated_gradients": True} if name == "averaged" else {}
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.5, **own), **options)
        model, alone = make_model(), make_model()
        start = of_rank_0(model.get_weights())
        model.compile(optimizer, "mse", **(QUICK if name == "averaged" else {}))
        model.fit(own_x, own_y, BATCH, epochs=2, shuffle=False, verbose=0, callbacks=broadcasting())
        rate = 0.15 if name == "summed" else 0.05
        plain = keras.optimizers.SGD(rate, momentum=0.5, gradient_accumulation_steps=3)
        expected = train_alone(alone, start, plain, joined(x, job.size), joined(y, job.size), BATCH * job.size, 2)
        results[name] = {
            "digest": digest(model.get_weights()),
            "distance": distance(model.get_weights(), expected),
            "num_exchanges": exchange_of(optimizer).num_exchanges,
        }
    return results


def check_uneven_steps(job: SimpleNamespace) -> dict[str, Any]:
    """Rank 0 has two steps more than rank 1: they count fully, and nobody waits forever."""
    x, y = make_data(8 * BATCH)
    own = slice(0, 5 * BATCH) if job.rank == 0 else slice(5 * BATCH, 8 * BATCH)
    model, alone = make_model(), make_model()
    start = of_rank_0(model.get_weights())
    model.compile(keras.optimizers.Adam(0.01), "mse")
    hvd.distribute(model)
    model.fit(x[own], y[own], BATCH, epochs=1, shuffle=False, verbose=0, validation_data=(x, y))
    first_epoch = [digest(model.get_weights()), model.get_weights()]
    model.fit(x[own], y[own], BATCH, epochs=1, shuffle=False, verbose=0)

    def both(data: Any) -> Any:
        pairs = ((data[k * BATCH : (k + 1) * BATCH], data[(5 + k) * BATCH : (6 + k) * BATCH]) for k in range(3))
        return np.concatenate([batch for pair in pairs for batch in pair])

    optimizer = keras.optimizers.Adam(0.01)
    train_alone(alone, start, optimizer, both(x), both(y), 2 * BATCH, epochs=1)
    if job.rank == 0:
        alone.fit(x[3 * BATCH : 5 * BATCH], y[3 * BATCH : 5 * BATCH], BATCH, shuffle=False, verbose=0)
    return {
        "digests": [first_epoch[0], state_digest(model)],
        "distance": distance(first_epoch[1], of_rank_0(alone.get_weights())),
        "num_exchanges": exchange_of(model.optimizer).num_exchanges,
    }


def check_different_epochs(job: SimpleNamespace) -> str:
    """Refused on all ranks before the first step."""
    model = make_model()
    model.compile("sgd", "mse")
    hvd.distribute(model)
    x, y = make_data(BATCH)
    try:
        model.fit(x, y, BATCH, epochs=1 + job.rank, verbose=0)
    except ValueError as error:
        return str(error)
    return "not refused"


@keras.saving.register_keras_serializable("ringlet_tests")
class SometimesUsed(keras.layers.Layer):
    """Adds a weight on some ranks only; the others have no gradient for it."""

    def __init__(self, is_used: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.is_used = is_used

    def build(self, shape: Any) -> None:
        self.extra = self.add_weight(shape=(shape[-1],), initializer="ones", name="extra")
        self.unused = self.add_weight(shape=(2,), initializer="ones", name="unused")

    def call(self, inputs: Any) -> Any:
        return inputs * self.extra if self.is_used else inputs


def check_missing_and_sparse_gradients(job: SimpleNamespace) -> dict[str, Any]:
    """An embedding (sparse gradients on TensorFlow), and weights without gradients on one rank or on all."""
    layer = SometimesUsed(is_used=job.rank == 1)
    model = keras.Sequential(
        [
            keras.layers.Input((4,), dtype="int32"),
            keras.layers.Embedding(10, 3),
            layer,
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    before = of_rank_0(model.get_weights())
    tokens = np.random.default_rng(0).integers(0, 10, (4 * BATCH * job.size, 4)).astype("int32")
    own_x, own_y = hvd.shard(tokens, tokens.sum(1, keepdims=True).astype("float32"))
    model.fit(own_x, own_y, BATCH, epochs=2, verbose=0, callbacks=broadcasting())
    extra, unused = layer.extra, layer.unused
    return {
        "digest": state_digest(model),
        "extra": float(np.abs(keras.ops.convert_to_numpy(extra) - 1).max()),
        "unused": float(np.abs(keras.ops.convert_to_numpy(unused) - 1).max()),
        "embedding": float(np.abs(model.get_weights()[0] - before[0]).max()),
    }


def check_no_gradients_at_all(job: SimpleNamespace) -> str:
    """Keras's own error stays."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    variable = keras.Variable(np.zeros(3, "float32"))
    try:
        optimizer.apply([None], [variable])
    except ValueError as error:
        return str(error)
    return "no error"


def check_xla(job: SimpleNamespace) -> dict[str, str]:
    """TensorFlow only: what XLA compiles cannot talk to other ranks; the error says what to do."""
    if job.backend != "tensorflow":
        return {}
    x, y = make_data(BATCH)
    messages = {}
    for name, callbacks in (("checked", broadcasting()), ("unchecked", [])):
        model = make_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
        try:
            model.fit(x, y, BATCH, verbose=0, callbacks=callbacks)
        except Exception as error:
            messages[name] = str(error)
    return messages


def check_parallel_data_of_torch(job: SimpleNamespace) -> dict[str, Any]:
    """torch only: gradients of a model inside DistributedDataParallel, as Keras 3.16 makes it, are averaged already."""
    if job.backend != "torch":
        return {}
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Wrapped(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y = data
            prediction = self.__dict__["ddp_model"](x)
            self.zero_grad()
            loss = self.compute_loss(x, y, prediction)
            loss.backward()
            gradients = [weight.value.grad for weight in self.trainable_weights]
            with torch.no_grad():
                self.optimizer.apply(gradients, self.trainable_weights)
            return {"loss": loss.detach()}

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{job.folder}/ddp", rank=job.rank, world_size=job.size
    )
    try:
        model = draw(Wrapped([keras.layers.Input((6,)), keras.layers.Dense(3)]), 0)
        object.__setattr__(model, "ddp_model", DistributedDataParallel(model))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum), "mse")
        alone = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
        start = of_rank_0(model.get_weights())
        x, y = make_data(2 * BATCH * job.size)
        own_x, own_y = hvd.shard(x, y)
        model.fit(own_x, own_y, BATCH, shuffle=False, verbose=0)
        sgd = keras.optimizers.SGD(0.1)
        expected = train_alone(alone, start, sgd, joined(x, job.size), joined(y, job.size), BATCH * job.size, 1)
        unwrapped = make_model()
        unwrapped.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        unwrapped.fit(own_x, own_y, BATCH, shuffle=False, verbose=0)
        return {
            "digest": digest(model.get_weights()),
            "distance": distance(model.get_weights(), expected),
            "num_exchanges": exchange_of(model.optimizer).num_exchanges,
            "num_exchanges_of_others": exchange_of(unwrapped.optimizer).num_exchanges,
        }
    finally:
        torch.distributed.destroy_process_group()
