"""What shows with three ranks only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
from keras_common import BATCH, digest, make_data, make_model, state_digest

import ringlet.keras as hvd


def check_three_uneven_shards(job: SimpleNamespace) -> dict[str, Any]:
    """Shards of 0, 1 or more steps, whose number nobody knows beforehand."""
    model = make_model()
    hvd.distribute(_compiled(model))
    num_samples = [3 * BATCH, BATCH + 1, 0][job.rank]

    def batches() -> Any:
        x, y = make_data(num_samples, seed=job.rank)
        yield from ((x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, num_samples, BATCH))

    if num_samples:
        model.fit(batches(), epochs=1, verbose=0)
    else:
        _sit_out(model)
    return {"digest": state_digest(model), "iterations": int(keras.ops.convert_to_numpy(model.optimizer.iterations))}


def _sit_out(model: Any) -> None:
    """Training with no step at all: what the callbacks of an epoch do."""
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.JoinCallback()]
    callbacks += [hvd.callbacks.AverageStatisticsCallback(), hvd.callbacks.MetricAverageCallback()]
    callbacks += [hvd.callbacks.StopTogetherCallback()]
    for callback in callbacks:
        callback.set_model(model)
        callback.set_params({"epochs": 1, "steps": None})
    for hook in ("on_train_begin", "on_epoch_begin", "on_epoch_end"):
        for callback in callbacks:
            arguments = () if hook == "on_train_begin" else (0, {})
            getattr(callback, hook)(*arguments)


def _compiled(model: Any) -> Any:
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def check_process_set(job: SimpleNamespace) -> dict[str, Any]:
    """Some of the ranks train together, the others alone."""
    chosen = hvd.add_process_set([1, 2])
    model = make_model()
    x, y = make_data(2 * BATCH * job.size)
    own_x, own_y = hvd.shard(x, y)
    included = chosen.included()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    if included:
        hvd.distribute(model, process_set=chosen)
    checkpoint = hvd.callbacks.BestModelCheckpoint(job.folder / f"of-{job.rank}.keras", monitor="loss")
    model.fit(own_x, own_y, BATCH, shuffle=False, verbose=0, callbacks=[checkpoint])
    hvd.barrier()
    total = hvd.allreduce(float(job.rank), op=hvd.Sum, process_set=chosen) if included else None
    everybody = hvd.allreduce(1.0, op=hvd.Sum)
    hvd.remove_process_set(chosen)
    return {
        "digest": digest(model.get_weights()),
        "included": included,
        "total": total,
        "everybody": everybody,
        "files": sorted(path.name for path in job.folder.glob("of-*")),
    }
