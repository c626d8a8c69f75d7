"""A training program as Horovod's users write it for tf.keras; nothing in it knows of Ringlet."""

import json
import sys

import horovod.tensorflow as tensorflow_hvd
import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.keras.callbacks import LearningRateWarmupCallback


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    generator = np.random.default_rng(3)
    data = generator.normal(size=(128, 6)).astype("float32")
    labels = (data[:, 0] * data[:, 1] > 0).astype("int32")
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * hvd.size()))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=optimizer, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        LearningRateWarmupCallback(initial_lr=0.01 * hvd.size(), warmup_epochs=3, verbose=0),
    ]
    own = slice(hvd.rank(), None, hvd.size())
    history = model.fit(data[own], labels[own], batch_size=16, epochs=30, callbacks=callbacks, verbose=0)
    if hvd.rank() == 0:
        model.save(sys.argv[1])
    hvd.allreduce(0.0, name="saved")
    again = hvd.load_model(sys.argv[1])

    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as plain:
        value = tf.reduce_sum(variable * variable) * float(hvd.rank() + 1)
    tape = tensorflow_hvd.DistributedGradientTape(plain)
    (gradient,) = tape.gradient(value, [variable])
    record = {
        "rank": hvd.rank(),
        "accuracy": history.history["accuracy"][-1],
        "weights": [float(np.abs(weight).sum()) for weight in model.get_weights()],
        "loaded": [float(np.abs(weight).sum()) for weight in again.get_weights()],
        "gradient": gradient.numpy().tolist(),
    }
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
