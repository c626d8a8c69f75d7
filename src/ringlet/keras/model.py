"""Whole models: made distributed by one call, loaded, and saved by one rank."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from functools import wraps
from typing import Any

import keras

from ringlet.errors import RingletError
from ringlet.keras import backends
from ringlet.keras.callbacks.agreement import JoinCallback, StopTogetherCallback
from ringlet.keras.callbacks.broadcast import AverageStatisticsCallback, BroadcastGlobalVariablesCallback
from ringlet.keras.callbacks.metrics import MetricAverageCallback
from ringlet.keras.collectives import broadcast_object
from ringlet.keras.errors import ArgumentError
from ringlet.keras.legacy import mend_optimizer
from ringlet.keras.optimizer import DistributedOptimizer, claim, process_set_of
from ringlet.named import session


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
    session.engine()
    if not getattr(model, "compiled", False):
        raise ArgumentError("the model has no optimizer to distribute: call model.compile(…) before distribute(model)")
    _ensure(model, options)
    fit = model.fit
    signature = inspect.signature(fit)

    @wraps(fit)
    def distributed_fit(*args: Any, **kwargs: Any) -> Any:
        _ensure(model, options)
        given = signature.bind(*args, **kwargs).arguments
        engine = session.engine(process_set_of(model))
        given["callbacks"] = _around(given.get("callbacks"), engine.ranks[0] if root_rank is None else root_rank)
        if engine.rank != 0:
            given["verbose"] = 0
        return fit(**given)

    model.fit = distributed_fit
    return model


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A model that was saved, with a distributed optimizer; ``options`` are those of :func:`DistributedOptimizer`.

    One rank may load and the others make the same model anew: they get its weights and its optimizer's state when
    training begins (``BroadcastGlobalVariablesCallback``).
    """
    objects = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.saving.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        mend_optimizer(model, filepath)
        _ensure(model, options)
    return model


def save_model(model: Any, filepath: str | os.PathLike[str], *, include_optimizer: bool = True) -> None:
    """Save on rank 0, while the others wait; an error of rank 0 is raised on all. Every rank must call.

    Without its optimizer a model is smaller and serves for predictions.
    """
    problem = None
    if session.engine().rank == 0:
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
    """The user's callbacks with ours before and behind them."""
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
