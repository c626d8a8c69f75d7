"""Whole models: made distributed by one call, with each rank's part of the data; loaded, and saved by one rank."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

import keras

from ringlet.comm.contract import Array
from ringlet.data.partition import bounds
from ringlet.errors import RingletError
from ringlet.keras import backends
from ringlet.keras.callbacks import (
    AverageStatisticsCallback,
    BroadcastGlobalVariablesCallback,
    JoinCallback,
    MetricAverageCallback,
    StopTogetherCallback,
)
from ringlet.keras.collectives import broadcast_object
from ringlet.keras.exchange import ArgumentError, Compression
from ringlet.keras.optimizer import DistributedOptimizer, claim, process_set_of, takes_part
from ringlet.keras.variables import build
from ringlet.named import session
from ringlet.named.horovod import Compressor

_HDF5 = (".h5", ".hdf5")


def distribute(model: Any, *, root_rank: int | None = None, **options: Any) -> Any:
    """``model`` itself, whose ``fit`` from now on trains on all ranks, each with its own data. Every rank must call.

    The optimizer averages gradients over ranks (``options`` are those of :func:`DistributedOptimizer`). ``fit`` then

    1. gives all ranks the weights and optimizer state of ``root_rank`` (default: the first) when it begins;
    2. lets ranks have different numbers of steps: those that are done wait, and get the weights of the last one;
    3. averages moving statistics, and metrics by numbers of samples, at the end of each epoch, before other callbacks;
    4. stops on all ranks if any rank wants to stop;
    5. shows its progress on the first rank only.

    What is compiled later is made distributed when ``fit`` begins. ``evaluate`` and ``predict`` stay local.
    """
    session.collectives()
    if not getattr(model, "compiled", False):
        raise ArgumentError("the model has no optimizer to distribute: call model.compile(…) before distribute(model)")
    _ensure(model, options)
    fit = model.fit
    signature = inspect.signature(fit)

    @wraps(fit)
    def distributed_fit(*args: Any, **kwargs: Any) -> Any:
        _ensure(model, options)
        given = signature.bind(*args, **kwargs).arguments
        if not takes_part(model):
            return fit(**given)
        collectives = session.collectives(process_set_of(model))
        given["callbacks"] = _around(given.get("callbacks"), collectives.ranks[0] if root_rank is None else root_rank)
        if collectives.rank != 0:
            given["verbose"] = 0
        return fit(**given)

    model.fit = distributed_fit
    return model


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    legacy_opts: bool = True,  # noqa: ARG001
    **options: Any,
) -> Any:
    """A model that was saved, with a distributed optimizer; ``options`` are those of :func:`DistributedOptimizer`.

    One rank may load and the others make the same model again: they get its weights and its optimizer's state when
    training begins (``BroadcastGlobalVariablesCallback``). ``legacy_opts`` is Horovod's: Keras 3 has one kind of
    optimizers.
    """
    objects = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.saving.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        _fix_optimizer(model, filepath)
        _ensure(model, {"compression": compression, **options})
    return model


def save_model(model: Any, filepath: str | os.PathLike[str], *, include_optimizer: bool = True) -> None:
    """Save on rank 0, while the others wait; an error of rank 0 is raised on all. Every rank must call.

    Without its optimizer a model is smaller and serves for predictions.
    """
    problem = None
    if session.collectives().rank == 0:
        try:
            _save(model, filepath, include_optimizer)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    problem = broadcast_object(problem, 0)
    if problem is not None:
        raise RingletError(f"rank 0 could not save the model to {os.fspath(filepath)}: {problem}")


def _save(model: Any, filepath: str | os.PathLike[str], include_optimizer: bool) -> None:
    path = os.fspath(filepath)
    if include_optimizer or not path.endswith(".keras") or not model.compiled:
        model.save(path, include_optimizer=include_optimizer)
        return
    optimizer = model.optimizer  # the format of .keras keeps whatever there is
    model.optimizer, model.compiled = None, False
    try:
        model.save(path)
    finally:
        model.optimizer, model.compiled = optimizer, True


def _ensure(model: Any, options: Mapping[str, Any]) -> None:
    """Make the optimizer distributed unless it is."""
    if claim(model) is not None:
        return
    model.optimizer = DistributedOptimizer(model.optimizer, **options)
    backends.current().forget_traces(model)
    claim(model)


def _around(callbacks: Any, root_rank: int) -> list[Any]:
    """The user's callbacks with ours before and after them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise ArgumentError(
            "callbacks of a distributed model must be given one by one: expected a list, not a CallbackList"
        )
    before = [
        BroadcastGlobalVariablesCallback(root_rank),
        JoinCallback(),
        AverageStatisticsCallback(),
        MetricAverageCallback(sample_weighted=True),
    ]
    users = keras.tree.flatten(callbacks) if callbacks else []
    return [*before, *users, StopTogetherCallback()]


def _fix_optimizer(model: Any, filepath: str | os.PathLike[str]) -> None:
    """Give a model that was read from an HDF5 file an optimizer that can resume.

    Keras 3 writes an optimizer's state there, but gives back one that knows no weights; training it fails ("Unknown
    variable"). So the optimizer is made again, with the state that is in the file.
    """
    optimizer = model.optimizer
    if not str(filepath).endswith(_HDF5) or not optimizer.built or optimizer._trainable_variables:
        return
    fixed = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    build(fixed, model.trainable_variables)
    values = _read_state(filepath)
    if [value.shape for value in values] == [tuple(variable.shape) for variable in fixed.variables]:
        for variable, value in zip(fixed.variables, values, strict=True):
            variable.assign(value)
    model.optimizer = fixed


def _read_state(filepath: str | os.PathLike[str]) -> list[Array]:
    """The optimizer's variables, in their order; the list of names is cut if it is too long for one attribute."""
    h5py = import_module("h5py")
    with h5py.File(filepath) as file:
        group = file["optimizer_weights"]
        parts = [name for name in group.attrs if name.startswith("weight_names")]
        parts.sort(key=lambda name: int(name.removeprefix("weight_names") or 0))
        names = [name for part in parts for name in group.attrs[part]]
        return [group[name][()] for name in names]


# -- data -------------------------------------------------------------------------------------------------------------
def shard_bounds(num_samples: int, rank: int | None = None, size: int | None = None) -> tuple[int, int]:
    """Start and end of this rank's samples; the first ``num_samples % size`` ranks get one more."""
    own = session.collectives().rank if rank is None else rank
    total = session.collectives().size if size is None else size
    return bounds(num_samples, own, total)


def shard(*arrays: Any, rank: int | None = None, size: int | None = None) -> Any:
    """This rank's part of each array along axis 0, as a view: one array for one, a tuple for several.

    ``x, y = hvd.shard(images, labels)``. All arrays must have the same length.
    """
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1:
        raise ArgumentError(
            f"arrays of lengths {[len(array) for array in arrays]} cannot be cut alike: expected at least one array, "
            "and the same number of samples in each"
        )
    start, stop = shard_bounds(lengths.pop(), rank, size)
    parts = tuple(array[start:stop] for array in arrays)
    return parts[0] if len(parts) == 1 else parts
