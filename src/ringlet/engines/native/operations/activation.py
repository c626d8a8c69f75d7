"""Operations on each element (or, softmax, on each pixel's channels)."""

from __future__ import annotations

from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View, emit_views

ACTIVATIONS = ("relu", "leaky_relu", "relu6", "sigmoid", "tanh", "arctanh", "log_sigmoid")
"""Activations that share one pair of kernels."""


class ActivationOperation(Operation):
    """``y = f(x)``; the derivative is computed from y, so y may overwrite x."""

    def needs(self) -> Needs:
        """Only y."""
        return Needs(output_in_backward=True, overwritable=self.inputs)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        emit.call("activation_forward", self.fused.node.op, x, y, slope=self._slope())

    def backward(self, emit: Emitter) -> None:
        """One call, in place where nobody else waits for the output's gradient."""
        y, dy = emit.values[self.output], emit.gradient(self.output)
        if (target := emit.target(self.inputs[0], reuse=self.output)) is not None:
            dx, accumulate = target
            emit.call("activation_backward", self.fused.node.op, y, dy, dx, slope=self._slope(), accumulate=accumulate)

    def _slope(self) -> float:
        return float(self.attribute("slope")) if self.fused.node.op == "leaky_relu" else 0.0


class Softmax(Operation):
    """Softmax over channels."""

    def needs(self) -> Needs:
        """Only y."""
        return Needs(output_in_backward=True, overwritable=self.inputs)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call."""
        emit.call("softmax_forward", emit.values[self.inputs[0]], emit.values[self.output])

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            emit.call(
                "softmax_backward", emit.values[self.output], emit.gradient(self.output), dx, accumulate=accumulate
            )


class Dropout(Operation):
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
            emit_views(self, emit)
            return
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        emit.call("dropout", x, y, layer=self.fused.index, rate=self._rate(), accumulate=False)

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            dy = emit.gradient(self.output)
            emit.call("dropout", dy, dx, layer=self.fused.index, rate=self._rate(), accumulate=accumulate)

    def _rate(self) -> float:
        return float(self.attribute("rate"))
