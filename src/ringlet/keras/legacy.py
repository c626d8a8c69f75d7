"""Optimizers in HDF5 files. Keras 3 writes their state, but gives back an optimizer that knows no weights.

Training a model that ``keras.saving.load_model`` read from such a file fails ("Unknown variable"), so the optimizer is
made anew here, with the state that is in the file.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import keras

from ringlet.comm.contract import Array
from ringlet.keras.variables import build

SUFFIXES = (".h5", ".hdf5")


def mend_optimizer(model: Any, filepath: str | os.PathLike[str]) -> None:
    """Give the model, which was read from this file, an optimizer that can go on."""
    optimizer = model.optimizer
    if not str(filepath).endswith(SUFFIXES) or not optimizer.built or optimizer._trainable_variables:
        return
    mended = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    build(mended, model.trainable_variables)
    values = _read_state(filepath)
    if [value.shape for value in values] == [tuple(variable.shape) for variable in mended.variables]:
        for variable, value in zip(mended.variables, values, strict=True):
            variable.assign(value)
    model.optimizer = mended


def _read_state(filepath: str | os.PathLike[str]) -> list[Array]:
    """The optimizer's variables, in their order; the list of names is cut if it is too long for one attribute."""
    h5py = import_module("h5py")
    with h5py.File(filepath) as file:
        group = file["optimizer_weights"]
        parts = [name for name in group.attrs if name.startswith("weight_names")]
        parts.sort(key=lambda name: int(name.removeprefix("weight_names") or 0))
        names = [name for part in parts for name in group.attrs[part]]
        return [group[name][()] for name in names]
