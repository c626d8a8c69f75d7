"""One rank's variables on all ranks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from ringlet.comm.contract import Array
from ringlet.keras.exchange import ArgumentError
from ringlet.named import ProcessSet, Reduction, Submission, session

_optimizers: list[weakref.ref[Any]] = []
"""Those that were distributed, in that order."""


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> None:
    """Set all variables to the values they have on ``root_rank``; in one operation. Every rank must call."""
    flats = _flat(variables)
    collectives = session.collectives(process_set)
    if collectives.size == 1 or not flats:
        return
    given = name or collectives.default_name("broadcast_variables")
    collectives.run(Submission("broadcast", given, tuple(flats.values()), tuple(flats.values()), root=root_rank))
    if collectives.ranks[collectives.rank] != root_rank:
        _assign(variables, flats)


def average_variables(variables: Sequence[Any], process_set: ProcessSet | None = None) -> None:
    """Set all variables, which are floating, to their average over the ranks. Every rank must call."""
    flats = _flat(variables)
    collectives = session.collectives(process_set)
    if collectives.size == 1 or not flats:
        return
    given = collectives.default_name("average_variables")
    collectives.run(Submission("allreduce", given, tuple(flats.values()), tuple(flats.values()), Reduction.AVERAGE))
    _assign(variables, flats)


def broadcast_model(
    model: Any, root_rank: int = 0, process_set: ProcessSet | None = None, local_variables: Iterable[Any] = ()
) -> None:
    """Weights of a model and state of its optimizer as they are on ``root_rank``. Every rank must call.

    States of random generators stay as they are, so that ranks drop out different units; so do ``local_variables``.
    """
    local = {id(variable) for variable in local_variables}
    variables = [variable for variable in model_state(model) if id(variable) not in local]
    broadcast_variables(variables, root_rank, process_set=process_set)


def model_state(model: Any) -> list[Any]:
    """The variables that make up a model and its optimizer, which is built if it is not yet."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return list(model.weights)
    build(optimizer, model.trainable_variables)
    return [*model.weights, *optimizer.variables]


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the optimizer's variables, if they are not there yet, as its first step would."""
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(variables))


def register(optimizer: Any) -> None:
    """Remember an optimizer for :func:`broadcast_global_variables`."""
    _optimizers.append(weakref.ref(optimizer))


def broadcast_global_variables(root_rank: int = 0, model: Any = None) -> None:
    """Horovod's name for :func:`broadcast_model`. Every rank must call.

    Keras 3 has no list of all variables: without ``model`` these are what distributed optimizers train, and their own
    variables, so it works from the first step on. Moving averages of normalisation layers need ``model``.
    """
    if model is not None:
        broadcast_model(model, root_rank)
        return
    gc.collect()  # which optimizers still exist must not depend on when each rank's garbage was collected
    optimizers = [optimizer for reference in _optimizers if (optimizer := reference()) is not None and optimizer.built]
    if not optimizers:
        raise ArgumentError(
            "no distributed optimizer has variables yet: pass the model, broadcast_global_variables(0, model=model), "
            "or use BroadcastGlobalVariablesCallback(0) in fit"
        )
    variables = [variable for optimizer in optimizers for variable in _trained_by(optimizer)]
    broadcast_variables(variables, root_rank)


def _trained_by(optimizer: Any) -> list[Any]:
    return [*optimizer._trainable_variables, *optimizer.variables]


def _flat(variables: Sequence[Any]) -> dict[str, Array]:
    """The values, one after the other, in one array for each dtype."""
    values: dict[str, list[Array]] = {}
    for variable in variables:
        array = keras.ops.convert_to_numpy(variable)
        values.setdefault(array.dtype.name, []).append(array.reshape(-1))
    return {name: np.concatenate(arrays) for name, arrays in values.items()}


def _assign(variables: Sequence[Any], flats: dict[str, Array]) -> None:
    offsets = dict.fromkeys(flats, 0)
    for variable in variables:
        dtype = keras.backend.standardize_dtype(variable.dtype)
        start = offsets[dtype]
        offsets[dtype] = stop = start + int(np.prod(variable.shape))
        variable.assign(flats[dtype][start:stop].reshape(variable.shape))
