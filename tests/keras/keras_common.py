"""What the checks of ``ringlet.keras`` share: small networks, data, and training alone as the thing to compare with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import ringlet.keras as hvd

BATCH = 4
"""Samples of one rank in a step."""
QUICK = {"run_eagerly": keras.backend.backend() == "tensorflow"}
"""For what does not depend on graphs: tracing a step takes TensorFlow longer than the few steps here."""


def make_model(num_inputs: int = 6, num_outputs: int = 3, seed: int | None = None) -> Any:
    """A small network; ranks draw different weights unless ``seed`` is given."""
    model = keras.Sequential(
        [
            keras.layers.Input((num_inputs,)),
            keras.layers.Dense(5, activation="tanh", name="hidden"),
            keras.layers.Dense(num_outputs, name="last"),
        ]
    )
    return draw(model, 100 + hvd.rank() if seed is None else seed)


def draw(model: Any, seed: int) -> Any:
    """The model with weights of this seed (Keras's own function for seeds imports TensorFlow, whatever the backend)."""
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(scale=0.4, size=weight.shape) for weight in model.get_weights()])
    return model


def make_data(num_samples: int, num_inputs: int = 6, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_samples, num_inputs)).astype("float32")
    return x, np.stack([x[:, 0] * x[:, 1], x[:, 2], np.sin(x[:, 3])], 1).astype("float32")


def digest(arrays: Sequence[Any]) -> str:
    """Equal if the bits are."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def state_digest(model: Any) -> str:
    """Of all weights and the optimizer's state."""
    return digest([*model.get_weights(), *(keras.ops.convert_to_numpy(v) for v in model.optimizer.variables)])


def distance(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The largest difference between two lists of weights."""
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(one, other, strict=True))


def of_rank_0(weights: Sequence[Any]) -> list[Any]:
    return [hvd.broadcast(weight, 0) for weight in weights]


def joined(array: Any, size: int, local_batch_size: int = BATCH) -> Any:
    """All samples in the order in which ``size`` ranks read their shards, batch after batch."""
    shards = [hvd.shard(array, rank=rank, size=size) for rank in range(size)]
    steps = range(0, len(shards[0]), local_batch_size)
    return np.concatenate([shard[start : start + local_batch_size] for start in steps for shard in shards])


def train_alone(model: Any, weights: Sequence[Any], optimizer: Any, x: Any, y: Any, batch: int, epochs: int) -> Any:
    """The weights after rank 0 has trained for itself, on all ranks; ``model`` must not be distributed."""
    model.compile(optimizer, "mse")  # the steps are enough for tracing to pay
    model.set_weights(weights)
    if hvd.rank() == 0:
        model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0)
    return of_rank_0(model.get_weights())


def broadcasting() -> list[Any]:
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]


class Recorder(keras.callbacks.Callback):
    """Keeps the learning rate of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))
