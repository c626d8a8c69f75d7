"""The fully connected layer."""

from __future__ import annotations

from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View


class Dense(Operation):
    """``y = weight @ x + bias``, ReLU on top if fused."""

    def needs(self) -> Needs:
        """The weight gradient reads x; the fused ReLU's mask reads y."""
        return Needs(input_in_backward=True, output_in_backward=self.relu)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        emit.call("dense_forward", x, self.parameter(emit, "weight"), self.bias(emit), y, relu=self.relu)

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("dense_backward_weight", x, dy, self.parameter_gradient(emit, "weight"))
        self.emit_bias_gradient(emit, dy)
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            emit.call("dense_backward_data", dy, self.parameter(emit, "weight"), dx, accumulate=accumulate)
