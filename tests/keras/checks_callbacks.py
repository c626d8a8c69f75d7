"""Callbacks: learning rates, metrics, checkpoints, stopping."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras_common import BATCH, QUICK, Recorder, broadcasting, digest, make_data, make_model

import ringlet.keras as hvd


def check_warmup(job: SimpleNamespace) -> dict[str, Any]:
    """lr/size to lr over two epochs of four batches, then left alone."""
    model = make_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.8, momentum=0.9)), "mse", **QUICK)
    recorder = Recorder()
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.8, warmup_epochs=2, verbose=job.rank == 0)
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    history = model.fit(x, y, BATCH, epochs=3, verbose=0, callbacks=[*broadcasting(), warmup, recorder])
    return {"rates": recorder.rates, "told": history.history["lr"], "digest": digest(model.get_weights())}


def check_schedules(job: SimpleNamespace) -> dict[str, Any]:
    """A constant multiplier, a function in stairs, one within epochs, and what cannot be."""
    results: dict[str, Any] = {}
    x, y = make_data(2 * BATCH)
    schedule = hvd.callbacks.LearningRateScheduleCallback
    callbacks = {
        "constant": schedule(1.0, 0.5, start_epoch=1, end_epoch=3),
        "staircase": schedule(1.0, lambda epoch: 1 / (1 + epoch)),
        "smooth": schedule(1.0, lambda epoch: 1 / (1 + epoch), staircase=False),
        "given_steps": schedule(1.0, lambda epoch: 1 + epoch, staircase=False, steps_per_epoch=4),
    }
    model = make_model()
    model.compile(keras.optimizers.SGD(1.0), "mse")  # traced once for all schedules
    for name, callback in callbacks.items():
        model.optimizer.learning_rate = 1.0
        recorder = Recorder()
        model.fit(x * 0, y * 0, BATCH, epochs=4, verbose=0, callbacks=[callback, recorder])
        results[name] = recorder.rates
    scheduled = make_model()
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    scheduled.compile(keras.optimizers.SGD(decay), "mse", **QUICK)
    unknown = make_model()
    unknown.compile("sgd", "mse", **QUICK)
    endless = ((x, y) for _ in iter(int, 1))
    for name, model, data in (("keras_schedule", scheduled, [x, y]), ("unknown_steps", unknown, [endless])):
        try:
            model.fit(*data, verbose=0, callbacks=[schedule(1.0, lambda epoch: 1 + epoch, staircase=False)])
        except ValueError as error:
            results[name] = str(error)
    return results


def check_momentum_correction(job: SimpleNamespace) -> dict[str, list[float]]:
    """What momentum has kept is scaled with the learning rate, or not; Adam's averages of gradients never."""
    x, y = make_data(BATCH)
    ratios = {}
    optimizers = {
        "sgd": keras.optimizers.SGD(0.1, momentum=0.9),
        "uncorrected": keras.optimizers.SGD(0.1, momentum=0.9),
        "rmsprop": keras.optimizers.RMSprop(0.1, momentum=0.9),
        "adam": keras.optimizers.Adam(0.1),
    }
    for name, optimizer in optimizers.items():
        model = make_model()
        model.compile(optimizer, "mse", **QUICK)
        model.train_on_batch(x, y)
        kept = next(v for v in optimizer.variables if "momentum" in v.path and len(v.shape) == 2)
        before = np.array(keras.ops.convert_to_numpy(kept))
        callback = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.25, momentum_correction=name != "uncorrected")
        callback.set_model(model)
        callback.on_epoch_begin(1)
        after = keras.ops.convert_to_numpy(kept)
        ratios[name] = [float(np.abs(before).max()), float(after.sum() / before.sum())]
    return ratios


def check_metrics(job: SimpleNamespace) -> dict[str, Any]:
    """Ranks with different data: plain and sample-weighted averages; one that only rank 0 has."""
    results = {}
    x, y = make_data(6 * BATCH)
    own = slice(0, 4 * BATCH) if job.rank == 0 else slice(4 * BATCH, None)
    test_x, test_y = make_data(5, seed=3)
    own_test = slice(0, 4) if job.rank == 0 else slice(4, None)
    for name in ("plain", "weighted"):
        model = make_model(seed=2)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"], **QUICK)
        callback = hvd.callbacks.MetricAverageCallback(sample_weighted=name == "weighted")
        history = model.fit(
            x[own], y[own], BATCH, verbose=0, callbacks=[callback], validation_data=(test_x[own_test], test_y[own_test])
        ).history
        results[name] = {key: values[0] for key, values in history.items()}
    whole = make_model(seed=2)
    whole.compile("sgd", "mse", metrics=["mae"], **QUICK)
    results["whole"] = whole.evaluate(x, y, BATCH, verbose=0, return_dict=True)
    results["whole_test"] = whole.evaluate(test_x, test_y, verbose=0, return_dict=True)
    local = whole.evaluate(x[own], y[own], BATCH, verbose=0, return_dict=True)
    results["evaluated"] = hvd.average_metrics(local, len(x[own]))
    results["of_rank_0"] = hvd.average_metrics({"a": 3.0, "both": 1.0} if job.rank == 0 else {"both": 2.0})
    results["empty"] = hvd.average_metrics({"a": float(job.rank)}, 0)
    return results


class _StopsAfter(keras.callbacks.Callback):
    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == self.epoch


def check_stopping(job: SimpleNamespace) -> int:
    """Rank 1 wants to stop after the second epoch; all do."""
    model = make_model()
    model.compile("sgd", "mse", **QUICK)
    hvd.distribute(model)
    x, y = hvd.shard(*make_data(BATCH * job.size))
    callbacks = _StopsAfter(1) if job.rank == 1 else None
    history = model.fit(x, y, BATCH, epochs=5, verbose=0, callbacks=callbacks)
    return len(history.epoch)


def check_best_checkpoint(job: SimpleNamespace) -> dict[str, Any]:
    """Rank 0 alone writes, and only what is better; what is saved is a plain model."""
    model = make_model()
    model.compile(keras.optimizers.Adam(0.01), "mse", **QUICK)
    hvd.distribute(model)
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    path = job.folder / f"best-{job.rank}-{{epoch}}.keras"
    best = hvd.callbacks.BestModelCheckpoint(path, monitor="loss")
    history = model.fit(x, y, BATCH, epochs=2, verbose=0, callbacks=[best])
    hvd.barrier()
    files = sorted(file.name for file in job.folder.glob("best-*"))
    losses = history.history["loss"]
    expected = ["best-0-1.keras", *(["best-0-2.keras"] if losses[1] < losses[0] else [])]
    return {"files": files, "expected": expected, "best": best.best, "loss": min(losses)}
