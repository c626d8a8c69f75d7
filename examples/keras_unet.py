"""Which pixels are the car? A U-Net with Keras 3: ``ringlet run -n 2 examples/keras_unet.py --data FOLDER``.

FOLDER has ``train/images`` and ``train/masks`` (and the same below ``val``). Without it the program draws cars itself.
``KERAS_BACKEND=tensorflow``, ``torch`` or ``jax`` chooses what computes.

The program shows each part of distributed training by itself, as programs for Horovod are written: who reads which
images, the learning rate, gradients, equal beginnings, checkpoints by rank 0, and resuming: started again with the same
``--checkpoints``, it goes on after the newest one. ``hvd.distribute(model)`` does most of it in one call, see
``keras_mnist.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

import ringlet
import ringlet.keras as hvd

CHECKPOINT = "checkpoint-{epoch}.keras"


@keras.saving.register_keras_serializable("unet")
def dice_coef(y_true: Any, y_pred: Any) -> Any:
    """2 |A and B| / (|A| + |B|) of the true and the predicted mask, smoothed by one pixel: 1 if they are equal."""
    y_true, y_pred = ops.reshape(ops.cast(y_true, y_pred.dtype), [-1]), ops.reshape(y_pred, [-1])
    return (2 * ops.sum(y_true * y_pred) + 1) / (ops.sum(y_true) + ops.sum(y_pred) + 1)


@keras.saving.register_keras_serializable("unet")
def dice_coef_loss(y_true: Any, y_pred: Any) -> Any:
    """What training makes small."""
    return 1 - dice_coef(y_true, y_pred)


def draw_cars(num_images: int, size: int, seed: int) -> tuple[Any, Any]:
    """Images (N, size, size, 3) from 0 to 1 of something like cars, and their masks (N, size, size, 1)."""
    random = np.random.default_rng(seed)
    images = np.empty((num_images, size, size, 3), "float32")
    masks = np.empty((num_images, size, size, 1), "float32")
    rows, columns = (axis.astype("float32") / size for axis in np.mgrid[:size, :size])
    for index in range(num_images):
        left, top, length = random.uniform(0.08, 0.3), random.uniform(0.4, 0.6), random.uniform(0.45, 0.6)
        x, y = (columns - left) / length, (rows - top) / length  # the car goes from x = 0 to x = 1
        body = (x > 0) & (x < 1) & (y > 0) & (y < 0.25)
        cabin = (y > -0.2) & (y <= 0) & (x > 0.2 - y / 2) & (x < 0.75 + y / 2)
        wheels = np.minimum(np.hypot(x - 0.22, y - 0.25), np.hypot(x - 0.78, y - 0.25)) < 0.11
        car = body | cabin | wheels
        street, paint = random.uniform(0.2, 0.8, 3), random.uniform(0, 1, 3)
        picture = np.where(car[..., None], paint, street * (0.7 + 0.3 * rows[..., None]))
        picture = np.where((wheels & ~body)[..., None], 0.1, picture)
        images[index] = np.clip(picture + random.normal(0, 0.08, picture.shape), 0, 1)
        masks[index] = car[..., None]
    return images, masks


def load_data(options: argparse.Namespace) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Images and masks, for training and for the test."""
    if options.data is None:
        return draw_cars(options.samples, options.size, seed=0), draw_cars(40, options.size, seed=1)
    dataset = ringlet.load_dataset("masks", path=options.data, image_size=options.size)
    parts = []
    for source in (dataset.train, dataset.validation or dataset.test or dataset.train):
        images, masks = source.read(np.arange(len(source)))
        parts.append((np.moveaxis(images, 1, -1) / np.float32(255), np.moveaxis(masks, 1, -1)))
    return parts[0], parts[1]


def get_unet(input_shape: tuple[int, ...], num_filters: int, depth: int = 3) -> keras.Model:
    """Down with ever more filters, up again, with the finer images of the way down joined in."""

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.BatchNormalization(momentum=0.9)(x)
            x = keras.layers.Activation("relu")(x)
        return x

    x = inputs = keras.Input(input_shape)
    joined = []
    for level in range(depth):
        x = twice(x, num_filters << level)
        joined.append(x)
        x = keras.layers.MaxPooling2D()(x)
    x = twice(x, num_filters << depth)
    for level in reversed(range(depth)):
        x = keras.layers.Conv2DTranspose(num_filters << level, 2, strides=2)(x)
        x = twice(keras.layers.Concatenate()([x, joined[level]]), num_filters << level)
    outputs = keras.layers.Conv2D(1, 1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs)


def newest_epoch(folder: Path) -> int:
    """The epoch of the newest checkpoint, 0 without one."""
    prefix, suffix = CHECKPOINT.split("{epoch}")
    names = [path.name.removeprefix(prefix).removesuffix(suffix) for path in folder.glob(f"{prefix}*{suffix}")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def main() -> None:
    """Train, test, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with images and masks (default: cars are drawn)")
    parser.add_argument("--samples", type=int, default=240, help="how many cars are drawn (default: %(default)s)")
    parser.add_argument("--size", type=int, default=48, help="of images, in pixels (default: %(default)s)")
    parser.add_argument("--filters", type=int, default=8, help="of the first convolution (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=8, help="of each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="more epochs to train (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--checkpoints", type=Path, help="folder to save to and to go on from")
    parser.add_argument("--resume-from", type=int, help="go on after this epoch (default: the newest; 0: begin anew)")
    parser.add_argument("--save", type=Path, help="where rank 0 leaves the trained model, NAME.keras")
    parser.add_argument("--include-optimizer", action="store_true", help="save what further training needs, too")
    options = parser.parse_args()

    hvd.init()
    is_first = hvd.rank() == 0
    (images, masks), (test_images, test_masks) = load_data(options)
    start, end = hvd.shard_bounds(len(images))  # the first ranks get one image more if they cannot be shared evenly
    print(f"rank {hvd.rank()} reads images {start} to {end}", flush=True)

    # Rank 0 looks for checkpoints; what it finds holds for all, whether or not they can see its files.
    resume_from_epoch = 0
    if options.checkpoints and is_first:
        options.checkpoints.mkdir(parents=True, exist_ok=True)
        resume_from_epoch = newest_epoch(options.checkpoints) if options.resume_from is None else options.resume_from
    resume_from_epoch = hvd.broadcast(resume_from_epoch, 0, name="resume_from_epoch")

    if resume_from_epoch > 0 and is_first:
        print(f"going on after epoch {resume_from_epoch}", flush=True)
        model = hvd.load_model(options.checkpoints / CHECKPOINT.format(epoch=resume_from_epoch))
    else:
        model = get_unet(images.shape[1:], options.filters)
        optimizer = keras.optimizers.Adam(hvd.scale_learning_rate(options.lr))
        model.compile(hvd.DistributedOptimizer(optimizer), dice_coef_loss, metrics=[dice_coef])

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # weights and optimizer state of rank 0, for all
        hvd.callbacks.AverageStatisticsCallback(),  # of batch normalisation, after each epoch
        hvd.callbacks.MetricAverageCallback(sample_weighted=True),  # before all that look at metrics
    ]
    if options.checkpoints and is_first:
        path = options.checkpoints / CHECKPOINT
        callbacks.append(keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True))
    model.fit(
        images[start:end],
        masks[start:end],
        batch_size=options.batch_size,
        epochs=resume_from_epoch + options.epochs,
        initial_epoch=resume_from_epoch,
        validation_split=0.1,
        callbacks=callbacks,
        verbose=2 if is_first else 0,
    )

    own_images, own_masks = hvd.shard(test_images, test_masks)
    local = model.evaluate(own_images, own_masks, batch_size=options.batch_size, verbose=0, return_dict=True)
    found = hvd.average_metrics(local, len(own_images))
    if is_first:
        print(f"test loss {found['loss']:.4f}, dice {found['dice_coef']:.4f}", flush=True)
    if options.save:
        hvd.save_model(model, options.save, include_optimizer=options.include_optimizer)


if __name__ == "__main__":
    main()
