"""MNIST with Keras 3, on any of its backends: ``ringlet run -n 2 examples/keras_mnist.py --data FOLDER``.

FOLDER holds MNIST's four idx files. Without it the program trains on Ringlet's built-in digits, 1,797 images of 8x8
pixels. ``KERAS_BACKEND=tensorflow``, ``torch`` or ``jax`` chooses what computes.

Of an ordinary Keras program only the lines with ``hvd`` are new.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np

import ringlet
import ringlet.keras as hvd


def load_data(options: argparse.Namespace) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Images (N, H, W, 1), from 0 to 1, and labels: for training and for the test."""
    if options.data is None:
        dataset = ringlet.load_dataset("digits")
    else:
        dataset = ringlet.load_dataset("mnist", path=options.data, num_samples=options.samples)
    parts = []
    for source in (dataset.train, dataset.test):
        images, labels = source.read(np.arange(min(len(source), options.samples or len(source))))
        images = images.astype("float32") / images.max()
        parts.append((np.moveaxis(images, 1, -1), labels))
    return parts[0], parts[1]


def make_model(input_shape: tuple[int, ...]) -> keras.Model:
    """The network of Keras's MNIST example: two convolutions, two dense layers."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input(input_shape),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    """Train, test, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST's idx files (default: built-in digits)")
    parser.add_argument("--samples", type=int, help="use so many samples of MNIST only")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--warmup-epochs", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--fp16-allreduce", action="store_true", help="exchange gradients in 16 bits")
    parser.add_argument("--save", type=Path, help="where rank 0 keeps the best model, NAME.keras")
    options = parser.parse_args()

    hvd.init()
    train, test = load_data(options)
    images, labels = hvd.shard(*train)  # each rank has its own part of the samples …
    test_images, test_labels = hvd.shard(*test)

    model = make_model(images.shape[1:])
    learning_rate = hvd.scale_learning_rate(options.lr)  # … so a step sees more of them, and may be larger
    model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    hvd.distribute(model, compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none)

    callbacks = [hvd.callbacks.LearningRateWarmupCallback(learning_rate, options.warmup_epochs)]
    if options.save:
        callbacks.append(hvd.callbacks.BestModelCheckpoint(options.save))
    history = model.fit(
        images,
        labels,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(test_images, test_labels),
        validation_batch_size=250,
        callbacks=callbacks,
        verbose=2,
    )

    if hvd.rank() == 0:  # metrics are those over the samples of all ranks
        figures = {name: values[-1] for name, values in history.history.items()}
        print(f"test loss {figures['val_loss']:.4f}, accuracy {figures['val_accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
