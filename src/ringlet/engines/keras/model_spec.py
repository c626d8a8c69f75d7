"""What must be known of a Keras model before it trains: its variables by kind, its layout of images, its outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras as typed_keras
import numpy as np
from numpy.typing import NDArray

from ringlet.errors import SpecError
from ringlet.models.module_spec import Activation, Kind, ModuleSpec, TensorInfo, dtype_name
from ringlet.operations.attributes import Shape

keras: Any = typed_keras
"""It comes without types."""

Choose = Callable[[Shape, bool | None], Activation]
"""The activation for outputs of a shape; they are known to be probabilities, known not to be, or not known."""

_SEED = "seed_generator_state"
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_TOLERANCE = 1e-3


def describe_model(model: Any, inputs: NDArray[Any], choose: Choose) -> ModuleSpec:
    """Look at a model and pass a few samples ``(n, *input_shape)``, channels first, through it; it stays as it was."""
    shape = tuple(inputs.shape[1:])
    last = takes_channels_last(model, shape)
    samples = np.transpose(inputs, _TO_LAST) if last else inputs
    raw, changed = _probe(model, samples)
    tensors = [*_parameters(model, str(inputs.dtype)), *_others(model, changed, str(inputs.dtype))]
    if not any(tensor.kind == "parameter" for tensor in tensors):
        raise SpecError(f"model '{model.name}' has no trainable variables: there is nothing to train")
    outputs = as_outputs(raw, channels_last=last)
    output_shape = tuple(int(extent) for extent in outputs.shape[1:])
    activation = choose(output_shape, _gives_probabilities(model, np.asarray(keras.ops.convert_to_numpy(outputs))))
    return ModuleSpec(
        network_name(model), "keras", shape, output_shape, activation, tuple(tensors), _num_activations(model), model
    )


def takes_channels_last(model: Any, shape: Shape) -> bool:
    """Whether samples ``(C, H, W)`` must become ``(H, W, C)`` for a model; what fits neither way is refused.

    A model that says nothing, or whose input fits both ways, is taken by Keras' own setting.
    """
    wanted = _input_shape(model)
    if len(shape) != 3:
        if wanted is not None and not _fits(wanted, shape):
            raise SpecError(f"model '{model.name}' takes {wanted}, the data are {shape}: expected the same shape")
        return False
    moved = (*shape[1:], shape[0])
    usual = bool(keras.config.image_data_format() == "channels_last")
    if wanted is None:
        return usual
    fits = _fits(wanted, shape), _fits(wanted, moved)
    if not any(fits):
        raise SpecError(
            f"model '{model.name}' takes {wanted}, the data are {shape} (channels, height, width): expected an input "
            f"of {moved}, or of {shape}"
        )
    return usual if all(fits) else fits[1]


def to_model(images: Any, *, channels_last: bool) -> Any:
    """Inputs (or targets) in the layout of the model."""
    return keras.ops.transpose(images, _TO_LAST) if channels_last and len(images.shape) == 4 else images


def as_outputs(raw: Any, *, channels_last: bool) -> Any:
    """What a model gives with its channels first, and at least one axis beside the samples."""
    if len(raw.shape) == 1:
        return keras.ops.expand_dims(raw, 1)
    return keras.ops.transpose(raw, _TO_FIRST) if channels_last and len(raw.shape) == 4 else raw


def network_name(model: Any) -> str:
    """What the run calls a model: its name, without the number that Keras gives to names of its own."""
    return _base_name(model)


def names_of(model: Any) -> dict[int, str]:
    """The name of each variable, by its identity: its path in this model.

    Keras numbers the names that it chooses itself over the whole program (``dense_7``). Here they are numbered within
    their model, so that a program which makes its model again finds the same names.
    """
    chosen = {layer.name: base for layer in (model, *_sublayers(model)) if (base := _base_name(layer)) != layer.name}
    known: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    names: dict[int, str] = {}
    for variable in model.variables:
        path = ""
        for part in variable.path.split("/"):
            if (path, part) not in known:
                known[path, part] = _free(f"{path}/{chosen.get(part, part)}".lstrip("/"), taken)
            path = known[path, part]
        names[id(variable)] = path if path not in names.values() else _free(path, taken)
    return names


def _sublayers(model: Any) -> list[Any]:
    return list(model._flatten_layers(include_self=False))


def _base_name(layer: Any) -> str:
    """The name of a layer without a number that Keras has added."""
    base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(layer).__name__).lower()
    name, _, number = str(layer.name).rpartition("_")
    return name if number.isdecimal() and name == base else str(layer.name)


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is taken then."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def is_seed(variable: Any) -> bool:
    """Whether it is the state of a random generator: every pass sets it."""
    return bool(variable.path.rpartition("/")[2] == _SEED or variable.name == _SEED)


def single_output(model: Any, outputs: Any) -> Any:
    """The one tensor that a model gives; anything else is refused."""
    if isinstance(outputs, dict | list | tuple) or not hasattr(outputs, "shape"):
        raise SpecError(
            f"model '{model.name}' gives a {type(outputs).__name__}, expected one tensor: make a model of the output "
            "to learn from"
        )
    return outputs


# -- variables by kind -------------------------------------------------------------------------------------------------
def _parameters(model: Any, dtype: str) -> list[TensorInfo]:
    names = names_of(model)
    for variable in model.trainable_variables:
        if str(variable.dtype) != dtype:
            raise SpecError(
                f"variable '{variable.path}' of model '{model.name}' is of {variable.dtype}, the run keeps weights in "
                f"{dtype}: give dtype='{variable.dtype}', or make the model in {dtype}"
            )
    return [_info(model, names, variable, "parameter") for variable in model.trainable_variables]


def _others(model: Any, changed: set[int], dtype: str) -> list[TensorInfo]:
    names, found = names_of(model), []
    for variable in model.non_trainable_variables:
        if is_seed(variable):
            continue
        if id(variable) in changed and str(variable.dtype) != dtype:
            raise SpecError(
                f"variable '{variable.path}' of model '{model.name}' changes in training and is of {variable.dtype}; a "
                f"run in {dtype} keeps such statistics in {dtype}"
            )
        found.append(_info(model, names, variable, "state" if id(variable) in changed else "constant"))
    return found


def _info(model: Any, names: dict[int, str], variable: Any, kind: Kind) -> TensorInfo:
    dtype = dtype_name(str(variable.dtype))
    if not dtype:
        raise SpecError(
            f"variable '{variable.path}' of model '{model.name}' is of {variable.dtype}, which cannot be kept in a "
            "checkpoint"
        )
    return TensorInfo(names[id(variable)], tuple(map(int, variable.shape)), dtype, kind)


# -- a first pass ------------------------------------------------------------------------------------------------------
def _probe(model: Any, samples: NDArray[Any]) -> tuple[Any, set[int]]:
    """What a model gives in inference, and (by identity) the variables that a training pass would change."""
    try:
        if not model.built or _input_shape(model) is None:
            model(keras.ops.convert_to_tensor(samples), training=False)
        own = [variable.value for variable in model.trainable_variables]
        before = [variable.value for variable in model.non_trainable_variables]
        _, after = model.stateless_call(own, before, keras.ops.convert_to_tensor(samples), training=True)
        raw, _ = model.stateless_call(own, before, keras.ops.convert_to_tensor(samples), training=False)
    except Exception as error:
        raise SpecError(
            f"model '{model.name}' cannot take the data, inputs of shape {samples.shape} "
            f"({type(error).__name__}: {str(error)[:300]})"
        ) from error
    single_output(model, raw)
    if len(raw.shape) == 0 or raw.shape[0] != len(samples):
        raise SpecError(f"model '{model.name}' gives {tuple(raw.shape)} for {len(samples)} samples")
    return raw, _changed(model.non_trainable_variables, before, after)


def _changed(variables: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> set[int]:
    """Variables with other values, and those of the same layer: statistics may happen to be as before."""
    writers = {
        variable.path.rpartition("/")[0]
        for variable, old, new in zip(variables, before, after, strict=True)
        if not is_seed(variable)
        and not np.array_equal(keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(new))
    }
    return {id(variable) for variable in variables if variable.path.rpartition("/")[0] in writers}


def _gives_probabilities(model: Any, outputs: NDArray[Any]) -> bool | None:
    """By the last layer, else by what comes out: None if that could be either."""
    layer = _last_layer(model)
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    if name in ("softmax", "sigmoid") or isinstance(layer, keras.layers.Softmax):
        return True
    if name == "linear" or outputs.min() < 0.0 or outputs.max() > 1.0:
        return False
    sums = outputs.sum(axis=1)
    return True if outputs.shape[1] > 1 and np.allclose(sums, 1.0, atol=_TOLERANCE) else None


def _last_layer(model: Any) -> Any:
    """The layer that makes the output; within models that are layers as well."""
    found: Any = model
    while isinstance(found, keras.Model):
        outputs = getattr(found, "outputs", None)
        history = getattr(outputs[0], "_keras_history", None) if outputs else None
        if history is None or history.operation is found:
            return None
        found = history.operation
    return found


def _input_shape(model: Any) -> Shape | None:
    """Of one sample, with None for what is open; None if the model does not say."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    if len(inputs) != 1:
        raise SpecError(f"model '{model.name}' takes {len(inputs)} inputs: expected one")
    return tuple(inputs[0].shape[1:])


def _fits(wanted: Sequence[int | None], shape: Shape) -> bool:
    return len(wanted) == len(shape) and all(
        one is None or one == other for one, other in zip(wanted, shape, strict=True)
    )


def _num_activations(model: Any) -> int:
    """Numbers that the outputs of all layers have for each sample, as far as shapes are known."""
    total = 0
    for layer in model.layers:
        try:
            total += int(np.prod([extent or 1 for extent in layer.output.shape[1:]]))
        except (AttributeError, ValueError):
            continue
    return total
