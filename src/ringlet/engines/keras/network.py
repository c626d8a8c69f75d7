"""A spec as a functional model of Keras, and that model as a pure function of the spec's tensors."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, final

import keras as typed_keras

from ringlet.models.spec import ModelSpec
from ringlet.operations.writers import Arrangement, KerasWriter, Value

keras: Any = typed_keras
"""It comes without types."""

_ROLES = {"kernel": "weight"}
"""What Keras calls a tensor, and what the specs call it, if that is another name."""

Tensors = Sequence[Any]
Owners = dict[int, tuple[str, Arrangement | None]]
"""By the identity of a variable: the name of its tensor in the spec, and how Keras lays it out."""


@final
class KerasNetwork:
    """A network that takes its tensors as arguments; the loss reads the value of node ``prediction``.

    Images have the layout that suits the backend. PyTorch's own is also the safe one: on processors its convolutions
    with the channels last may write beyond their results (seen with 2.13: 1x1, stride 2, 4 channels).
    """

    def __init__(self, spec: ModelSpec, prediction: str, dtype: str, frozen: Set[str] = frozenset()) -> None:
        channels_first = keras.backend.backend() == "torch"
        writer = KerasWriter(keras, dtype, channels_first=channels_first, initializer="zeros")
        self._dtype = writer.dtype
        with writer.layout():
            self.model = _model(spec, prediction, writer, frozen)
        owners = _owners(writer)
        self._trainable = _places(self.model.trainable_variables, owners, [info.name for info in spec.parameters])
        self._statistics = _places(self.model.non_trainable_variables, owners, [info.name for info in spec.state])

    def __call__(
        self, parameters: Tensors, state: Tensors, images: Any, masks: Tensors, *, training: bool
    ) -> tuple[Any, Any, list[Any]]:
        """What the loss reads, what the network puts out, and the new state; images and masks are channels first."""
        trainable = [
            parameters[place] if arrangement is None else arrangement.apply(parameters[place], keras.ops)
            for place, arrangement in self._trainable
        ]
        statistics = [state[place] for place, _ in self._statistics]
        values, changed = self.model.stateless_call(trainable, statistics, [images, *masks], training=training)
        seen = values if isinstance(values, list | tuple) else [values]  # Keras takes a single one out of its list
        new_state = list(state)
        for (place, _), value in zip(self._statistics, changed, strict=True):
            new_state[place] = value
        return keras.ops.cast(seen[0], self._dtype), keras.ops.cast(seen[-1], self._dtype), new_state


def _model(spec: ModelSpec, prediction: str, writer: KerasWriter, frozen: Set[str]) -> Any:
    """The functional model: images and what is fed in, all channels first, to what the loss reads and the output."""
    images = keras.Input(tuple(spec.input_shape), dtype=writer.dtype)
    values = {spec.nodes[0].name: _permuted(images, (2, 3, 1), writer)}
    roles: dict[str, dict[str, str]] = {node.name: {} for node in spec.nodes}
    for info in (*spec.parameters, *spec.state):
        roles[info.node][info.role] = info.name
    for node in spec.nodes[1:]:
        inputs = [values[name] for name in node.inputs]
        if node is spec.nodes[-1] and node.name != prediction:
            writer.policy = writer.dtype  # nothing learns from it, so it is not rounded
        layer = spec.layer(node, roles[node.name], learns=node.name not in frozen)
        values[node.name] = node.operation.keras_training(writer, layer, inputs)
    seen = dict.fromkeys((prediction, spec.nodes[-1].name))
    outputs = [_permuted(values[name], (3, 1, 2), writer) for name in seen]
    return keras.Model([images, *writer.fed], outputs)


def _permuted(value: Value, axes: tuple[int, int, int], writer: KerasWriter) -> Value:
    """Images with their axes in another order, if they are not channels first throughout."""
    if len(value.shape) == 2 or writer.channels_first:
        return value
    return keras.layers.Permute(axes, dtype=writer.policy)(value)


def _owners(writer: KerasWriter) -> Owners:
    owners: Owners = {}
    for name, (made, arrangement) in writer.owners.items():
        for variable in made.variables:
            role = _ROLES.get(variable.name, variable.name)
            owners[id(variable)] = f"{name}.{role}", arrangement if role == "weight" else None
    return owners


def _places(variables: Sequence[Any], owners: Owners, names: Sequence[str]) -> list[tuple[int, Arrangement | None]]:
    """For each variable of the model the place of its tensor among ``names``, and its arrangement."""
    found = [owners[id(variable)] for variable in variables]
    places = {name: place for place, name in enumerate(names)}
    return [(places[name], arrangement) for name, arrangement in found]
