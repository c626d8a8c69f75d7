"""A spec as a functional model of Keras, and that model as a pure function of the spec's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import keras as typed_keras

from ringlet.engines.keras.layers import Arrangement, Form, LayerWriter, Value, image_layout
from ringlet.engines.keras.layers_of_training import BatchNorm, FedDropout
from ringlet.models.spec import ModelSpec, Node

keras: Any = typed_keras
"""It comes without types."""

_VARIABLES = {
    "kernel": "weight",
    "bias": "bias",
    "scale": "scale",
    "shift": "shift",
    "running_mean": "running_mean",
    "running_var": "running_var",
}
"""What Keras calls a tensor, and what the specs call it."""

Tensors = Sequence[Any]


@final
class KerasNetwork:
    """A network that takes its tensors as arguments; the loss reads the value of node ``prediction``.

    Images have the layout that suits the backend. PyTorch's own is also the safe one: on processors its convolutions
    with the channels last may write beyond their results (seen with 2.13: 1x1, stride 2, 4 channels).
    """

    def __init__(self, spec: ModelSpec, prediction: str, dtype: str) -> None:
        channels_first = keras.backend.backend() == "torch"
        with image_layout(channels_first=channels_first):
            builder = _Builder(spec, dtype, channels_first=channels_first)
            self.model = builder.model(prediction)
        self._trainable = _places(self.model.trainable_variables, builder, [info.name for info in spec.parameters])
        self._statistics = _places(self.model.non_trainable_variables, builder, [info.name for info in spec.state])

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
        return seen[0], seen[-1], new_state


class _Builder:
    """Walks a spec and keeps which layer belongs to which node."""

    def __init__(self, spec: ModelSpec, dtype: str, *, channels_first: bool) -> None:
        self._spec, self._dtype, self._axis = spec, dtype, 1 if channels_first else -1
        self._writer = LayerWriter(dtype, channels_first=channels_first, initializer="zeros")
        self._values: dict[str, Value] = {}
        self._masks: list[Value] = []
        self.owners: dict[int, tuple[str, Arrangement | None]] = {}
        """By the identity of a variable: the name of its tensor in the spec, and how Keras lays it out."""

    def model(self, prediction: str) -> Any:
        spec = self._spec
        images = self._input(spec.input_shape)
        self._values[spec.nodes[0].name] = self._permuted(images, (2, 3, 1))
        for node in spec.nodes[1:]:
            self._values[node.name] = self._written(node)
        for name, (made, arrangement) in self._writer.weighted.items():
            self._claim(name, made, arrangement)
        seen = dict.fromkeys((prediction, spec.nodes[-1].name))
        outputs = [self._permuted(self._values[name], (3, 1, 2)) for name in seen]
        return keras.Model([images, *self._masks], outputs)

    def _written(self, node: Node) -> Value:
        inputs = [self._values[name] for name in node.inputs]
        options = {"dtype": self._dtype, "name": self._writer.name(node.name)}
        if node.op == "dropout":
            self._masks.append(self._input(self._spec.shapes[node.name]))
            return FedDropout(self._axis, **options)(inputs[0], self._masks[-1])
        if node.op == "batch_norm":
            made = BatchNorm(node.attributes["momentum"], node.attributes["epsilon"], self._axis, **options)
            value = made(inputs[0])
            self._claim(node.name, made, None)
            return value
        shapes = self._spec.shapes
        source, shape = shapes[node.inputs[0]], shapes[node.name]
        form = Form(node.name, node.op, node.attributes, source, shape, node.attributes.get("bias", False))
        return self._writer.write(form, inputs)

    def _claim(self, node: str, made: Any, arrangement: Arrangement | None) -> None:
        for variable in made.variables:
            role = _VARIABLES[variable.name]
            self.owners[id(variable)] = f"{node}.{role}", arrangement if role == "weight" else None

    def _input(self, shape: Sequence[int]) -> Value:
        return keras.Input(tuple(shape), dtype=self._dtype)

    def _permuted(self, value: Value, axes: tuple[int, int, int]) -> Value:
        """Images with their axes in another order, if they are not channels first throughout."""
        if len(value.shape) == 2 or self._axis == 1:
            return value
        return keras.layers.Permute(axes, dtype=self._dtype)(value)


def _places(variables: Sequence[Any], builder: _Builder, names: Sequence[str]) -> list[tuple[int, Arrangement | None]]:
    """For each variable of the model the place of its tensor among ``names``, and its arrangement."""
    found = [builder.owners[id(variable)] for variable in variables]
    places = {name: place for place, name in enumerate(names)}
    return [(places[name], arrangement) for name, arrangement in found]
