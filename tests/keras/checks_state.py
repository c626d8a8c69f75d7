"""Saving, loading, resuming, and states that survive failures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras_common import BATCH, QUICK, broadcasting, digest, make_data, make_model, state_digest

import ringlet.keras as hvd
from ringlet.errors import RingletError
from ringlet.keras.optimizer import exchange_of
from ringlet.named import CollectiveError, session


def check_saving_and_loading(job: SimpleNamespace) -> dict[str, Any]:
    """Rank 0 saves and loads, the others make a new model: training goes on as one."""
    results: dict[str, Any] = {}
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    loss = keras.losses.MeanSquaredError()  # Keras cannot load the name from HDF5
    for suffix in ("keras", "h5") if job.backend == "torch" else ("keras",):  # files do not know of backends
        path = job.folder / f"saved.{suffix}"
        model = make_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss, **QUICK)
        model.fit(x, y, BATCH, verbose=0, callbacks=broadcasting())
        hvd.save_model(model, path)
        plain = keras.saving.load_model(path)
        if job.rank == 0:
            resumed = hvd.load_model(path)
        else:
            resumed = make_model()
            resumed.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss, **QUICK)
        resumed.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=broadcasting())
        model.fit(x, y, BATCH, shuffle=False, verbose=0)
        results[suffix] = {
            "plain": [type(plain.optimizer).__name__, exchange_of(plain.optimizer) is None],
            "is_distributed": exchange_of(resumed.optimizer) is not None,
            "iterations": int(keras.ops.convert_to_numpy(resumed.optimizer.iterations)),
            "resumed": state_digest(resumed),
            "went_on": digest(model.get_weights()) == digest(resumed.get_weights()),
        }
    return results


def check_saving_without_optimizer(job: SimpleNamespace) -> dict[str, Any]:
    """Smaller files, same weights; an error of rank 0 reaches all."""
    model = make_model(seed=0)
    loss = keras.losses.MeanSquaredError()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss, metrics=["mae"], **QUICK)
    model.train_on_batch(*make_data(BATCH))
    results: dict[str, Any] = {}
    for suffix in ("keras", "h5"):
        whole, bare = job.folder / f"whole.{suffix}", job.folder / f"bare.{suffix}"
        hvd.save_model(model, whole)
        hvd.save_model(model, bare, include_optimizer=False)
        loaded = keras.saving.load_model(bare)
        results[suffix] = [
            digest(loaded.get_weights()) == digest(model.get_weights()),
            bare.stat().st_size < whole.stat().st_size,
            getattr(hvd.load_model(bare), "optimizer", None) is None,
        ]
    model.train_on_batch(*make_data(BATCH))  # goes on as if nothing had happened
    try:
        hvd.save_model(model, job.folder / "nowhere" / "model.keras")
        results["error"] = "no error"
    except RingletError as error:
        results["error"] = str(error)
    return results


def check_global_variables(job: SimpleNamespace) -> dict[str, Any]:
    """Horovod's old call: with a model, and of all that distributed optimizers train."""
    model = make_model()
    before = digest(model.get_weights())
    hvd.broadcast_global_variables(1, model=model)
    after = digest(model.get_weights())
    own = make_model()
    own.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", **QUICK)
    own.optimizer.build(own.trainable_variables)
    hvd.broadcast_global_variables(0)
    return {"before": before, "after": after, "optimizers": digest(own.get_weights())}


def check_elastic_state(job: SimpleNamespace) -> dict[str, Any]:
    """Commit, change, restore; what rank 0 has goes to all; commits on disk outlive the objects."""
    model = make_model()
    model.compile(keras.optimizers.Adam(0.01), "mse", **QUICK)
    hvd.distribute(model)
    state = hvd.elastic.KerasState(model, directory=job.folder / "elastic", epoch=job.rank, batch=0, note="a")
    loaded_first = state.load()
    state.sync()
    synced, epoch = state_digest(model), state.epoch
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=3),
    ]
    model.fit(x, y, BATCH, epochs=2, verbose=0, callbacks=callbacks)
    committed = state_digest(model)
    values = [state.epoch, state.batch]
    model.set_weights([weight * 0 for weight in model.get_weights()])
    state.epoch = 99
    state.restore()
    restored = [state_digest(model), state.epoch]
    other = make_model()
    other.compile(keras.optimizers.Adam(0.01), "mse", **QUICK)
    again = hvd.elastic.KerasState(other, directory=job.folder / "elastic", epoch=0, batch=0, note="")
    return {
        "loaded_first": loaded_first,
        "synced": [synced, epoch],
        "values": values,
        "committed": committed,
        "restored": restored,
        "loaded": [again.load(), state_digest(other), again.epoch, again.note],
    }


def check_elastic_run(job: SimpleNamespace) -> dict[str, Any]:
    """A collective that fails within a step on all ranks costs the steps since the last commit."""
    model = make_model()
    model.compile(keras.optimizers.SGD(0.01), "mse", **QUICK)
    hvd.distribute(model)
    x, y = hvd.shard(*make_data(4 * BATCH * job.size))
    state = hvd.elastic.KerasState(model, epoch=0)
    resets: list[int] = []
    state.register_reset_callbacks([lambda: resets.append(state.epoch)])
    exchange = exchange_of(model.optimizer)
    failing = [True]

    collectives = session.collectives()
    run = collectives.run

    def fail_once(submission: Any) -> Any:
        if submission.name == exchange.name and exchange.num_exchanges == 6 and failing.pop():
            failing.append(False)
            raise CollectiveError("made up for the test")
        return run(submission)

    collectives.run = fail_once

    @hvd.elastic.run
    def train(state: Any) -> int:
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 1000)]
        model.fit(x, y, BATCH, initial_epoch=state.epoch, epochs=3, verbose=0, callbacks=callbacks)
        return int(state.epoch)

    epoch = train(state)
    del collectives.run
    wrong = []

    @hvd.elastic.run
    def refuse(state: Any) -> None:
        wrong.append(1)
        hvd.allreduce(np.zeros(1 + job.rank), name="refuse")

    try:
        refuse(state)
        message = "no error"
    except ValueError as error:
        message = str(error)
    progress: list[int] = []

    @hvd.elastic.run
    def fail_after_every_commit(state: Any) -> None:
        progress.append(state.epoch)
        if len(progress) <= 6:
            state.epoch += 1
            state.commit()
            raise CollectiveError("works for an epoch")

    fail_after_every_commit(hvd.elastic.KerasState(model, epoch=0))
    stuck = []

    @hvd.elastic.run
    def commit_the_same(state: Any) -> None:
        stuck.append(1)
        state.commit()
        raise CollectiveError("never gets on")

    try:
        commit_the_same(hvd.elastic.KerasState(model, epoch=0))
    except CollectiveError as error:
        stuck.append(str(error))
    steps = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    return {
        "epoch": epoch, "resets": resets, "steps": steps, "digest": state_digest(model), "tries": len(wrong),
        "message": message, "progress": progress, "stuck": stuck,
    }  # fmt: skip
