"""Batch normalisation."""

from __future__ import annotations

from ringlet.engines.contract import Floats
from ringlet.engines.native.buffers import Tensor
from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View


class BatchNorm(Operation):
    """Statistics of the batch while training, running ones otherwise; ReLU on top if fused."""

    def needs(self) -> Needs:
        """The backward pass reads x, and y for the ReLU's mask; inference may overwrite x."""
        if self.training:
            return Needs(input_in_backward=True, output_in_backward=self.relu)
        return Needs(overwritable=self.inputs)

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], emit.values[self.output]
        scale, shift = self.parameter(emit, "scale"), self.parameter(emit, "shift")
        running = self._state(emit, "running_mean"), self._state(emit, "running_var")
        options = {"epsilon": float(self.attribute("epsilon")), "relu": self.relu}
        if self.training:
            momentum = float(self.attribute("momentum"))
            statistics = self._statistics(emit)
            emit.call(
                "batch_norm_forward_train", x, scale, shift, y, *statistics, *running, momentum=momentum, **options
            )
        else:
            emit.call("batch_norm_forward_infer", x, scale, shift, *running, y, **options)

    def backward(self, emit: Emitter) -> None:
        """One call; the kernel always writes the input's gradient, needed or not."""
        x, y, dy = emit.values[self.inputs[0]], emit.values[self.output], emit.gradient(self.output)
        relu = self.relu and self.output not in emit.rectified
        # Without a ReLU the kernel does not look at y: passing x lets y's memory go early.
        y = y if relu else x
        dx, accumulate = emit.target(self.inputs[0], reuse=self.output) or (emit.like(self.inputs[0]), False)
        scale = self.parameter(emit, "scale")
        dscale, dshift = self.parameter_gradient(emit, "scale"), self.parameter_gradient(emit, "shift")
        statistics = self._statistics(emit)
        emit.call(
            "batch_norm_backward",
            x,
            y,
            scale,
            dy,
            *statistics,
            dx,
            dscale,
            dshift,
            relu=relu,
            accumulate=accumulate,
        )

    def _statistics(self, emit: Emitter) -> tuple[Tensor, Tensor]:
        shape = (self.shapes[self.output][0],)
        return emit.saved(self.output, "mean", shape, emit.dtype), emit.saved(self.output, "inv_std", shape, emit.dtype)

    def _state(self, emit: Emitter, role: str) -> Floats:
        return emit.state[f"{self.fused.node.name}.{role}"]
