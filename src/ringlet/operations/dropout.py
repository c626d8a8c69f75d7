"""Dropout: drops elements in training, vanishes in inference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, final

from ringlet.operations.attributes import Shape, real
from ringlet.operations.base import Attributes, IdentityOperation, Layer, Shapes
from ringlet.operations.native import Emitter, NativeNode, Needs, View
from ringlet.operations.writers import KerasWriter, Value


@final
class DropoutNode(NativeNode):
    """The same masked scaling forward and backward; the mask is a function of the step's key, nothing is stored."""

    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """The input itself, except in training."""
        return () if self.training else ((self.inputs[0], 0),)

    def forward(self, emit: Emitter) -> None:
        """One call in training."""
        if not self.training:
            self.emit_views(emit)
            return
        self._drop(emit, emit.values[self.inputs[0]], emit.values[self.output], accumulate=False)

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            self._drop(emit, emit.gradient(self.output), dx, accumulate=accumulate)

    def _drop(self, emit: Emitter, source: object, target: object, *, accumulate: bool) -> None:
        rate = float(self.attribute("rate"))
        emit.call("dropout", source, target, layer=self.fused.index, rate=rate, accumulate=accumulate)


@final
class Dropout(IdentityOperation):
    """Zeroes a share ``rate`` of the elements in training and scales the rest."""

    name = "dropout"
    attributes = {"rate": real(0, 1, below=True)}
    node = DropoutNode
    is_random = True

    def infer(self, attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG002
        """That of the input."""
        return inputs[0]

    def torch_training(self, layer: Layer, names: Sequence[str]) -> str:
        """The product with the factors in training."""
        return f"{names[0]} * {layer.tensors['mask']} if training else {names[0]}"

    def keras_training(self, writer: KerasWriter, layer: Layer, inputs: Sequence[Value]) -> Value:
        """A layer of our own, with factors that are fed in."""
        made = _keras_dropout(writer.keras)(writer.axis, **writer.options(layer))
        return made(inputs[0], writer.feed(layer.shape))


@cache
def _keras_dropout(keras: Any) -> Any:
    @final
    class FedDropout(keras.layers.Layer):  # type: ignore[misc]
        """Dropout with factors that are fed in, channels first; in inference it does nothing."""

        def __init__(self, axis: int, **options: Any) -> None:
            super().__init__(**options)
            self._axis = axis

        def call(self, value: Any, factors: Any, training: bool = False) -> Any:
            """The product in training."""
            if not training:
                return value
            return value * (factors if len(value.shape) == 2 else keras.ops.moveaxis(factors, 1, self._axis))

    return FedDropout


OPERATIONS = (Dropout(),)
