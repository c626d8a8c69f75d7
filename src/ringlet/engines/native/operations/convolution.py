"""Convolution and its transpose. The plan replaces ``algorithm`` when it tunes."""

from __future__ import annotations

from typing import Any

from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View

_DEFAULT_ALGORITHM = "direct"


class Convolution(Operation):
    """``y = weight * x + bias``, ReLU on top if fused."""

    def needs(self) -> Needs:
        """The weight gradient reads x; the fused ReLU's mask reads y."""
        return Needs(input_in_backward=True, output_in_backward=self.relu)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        weight, bias = self.parameter(emit, "weight"), self.bias(emit)
        emit.call("conv2d_forward", x, weight, bias, y, relu=self.relu, **self._geometry())

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("conv2d_backward_weight", x, dy, self.parameter_gradient(emit, "weight"), **self._geometry())
        self.emit_bias_gradient(emit, dy)
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            weight = self.parameter(emit, "weight")
            mask = None
            if self.inputs[0] in emit.consumed_once:
                mask = x
                emit.rectified.add(self.inputs[0])
            emit.call("conv2d_backward_data", dy, weight, dx, mask, accumulate=accumulate, **self._geometry())

    def _geometry(self) -> dict[str, Any]:
        return {
            "stride": self.pair("stride"),
            "padding": self.pair("padding"),
            "dilation": self.pair("dilation"),
            "groups": int(self.attribute("groups")),
            "algorithm": _DEFAULT_ALGORITHM,
        }


class TransposedConvolution(Operation):
    """The transpose of the convolution that maps this output's shape to this input's.

    Its forward is that convolution's data gradient, its data gradient that convolution's forward, and its weight
    gradient the same with the two activations swapped. The weight ``(in, out, kh, kw)`` is the mirrored convolution's
    ``(K, C, R, S)``.
    """

    def needs(self) -> Needs:
        """As for the convolution."""
        return Needs(input_in_backward=True, output_in_backward=self.relu)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """The mirrored convolution's data gradient, then bias and ReLU in place."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        weight, bias = self.parameter(emit, "weight"), self.bias(emit)
        emit.call("conv2d_backward_data", x, weight, y, accumulate=False, **self._geometry())
        if bias is not None:
            emit.call("bias_forward", y, bias, relu=self.relu)
        elif self.relu:
            emit.call("activation_forward", "relu", y, y, slope=0.0)

    def backward(self, emit: Emitter) -> None:
        """Gradients of weight, bias and input; a second contribution to the input goes through a buffer of its own."""
        x, dy = emit.values[self.inputs[0]], self.before_relu(emit)
        emit.call("conv2d_backward_weight", dy, x, self.parameter_gradient(emit, "weight"), **self._geometry())
        self.emit_bias_gradient(emit, dy)
        if self.inputs[0] in emit.trainable:
            dx = emit.like(self.inputs[0])
            weight = self.parameter(emit, "weight")
            emit.call("conv2d_forward", dy, weight, None, dx, relu=False, **self._geometry())
            emit.contribute(self.inputs[0], dx)

    def _geometry(self) -> dict[str, Any]:
        return {
            "stride": self.pair("stride"),
            "padding": self.pair("padding"),
            "dilation": (1, 1),
            "groups": 1,
            "algorithm": _DEFAULT_ALGORITHM,
        }
