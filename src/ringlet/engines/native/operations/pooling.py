"""Maximum and average over windows, or over the whole image."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

import numpy as np

from ringlet.engines.native.buffers import Tensor
from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View


class _Pool(Operation):
    """Pooling needs nothing but, for maxima, their places."""

    def needs(self) -> Needs:
        """Neither input nor output."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    @abstractmethod
    def window(self) -> dict[str, Any]:
        """Kernel, stride and padding."""

    def as_image(self, tensor: Tensor) -> Tensor:
        """A pooled tensor as ``(C, P, Q, L)``: global pooling gives ``(C, L)``."""
        channels, *rest, lanes = tensor.shape
        height, width = rest or (1, 1)
        return tensor.reshape((channels, height, width, lanes))


class _MaxPool(_Pool):
    def forward(self, emit: Emitter) -> None:
        """One call; the places of the maxima are kept, those that a postponed ReLU cuts off excepted."""
        x, y = emit.values[self.inputs[0]], self.as_image(emit.values[self.output])
        emit.call("max_pool2d_forward", x, y, self._argmax(emit), relu=self.relu, **self.window())

    def backward(self, emit: Emitter) -> None:
        """One call; few elements flow back, so that the bias below is summed up here at little cost."""
        (source,) = self.inputs
        if (target := emit.target(source)) is not None:
            dx, accumulate = target
            dy, sums = self.as_image(emit.gradient(self.output)), emit.bias_gradients.get(source)
            if sums is not None:
                emit.summed.add(source)
            emit.call("max_pool2d_backward", dy, self._argmax(emit), dx, sums, accumulate=accumulate, **self.window())

    def _argmax(self, emit: Emitter) -> Tensor:
        shape = self.as_image(emit.values[self.output]).shape
        return emit.saved(self.output, "argmax", shape, np.dtype(np.uint16))


class _AveragePool(_Pool):
    def forward(self, emit: Emitter) -> None:
        """One call."""
        x, y = emit.values[self.inputs[0]], self.as_image(emit.values[self.output])
        emit.call("avg_pool2d_forward", x, y, **self.window())

    def backward(self, emit: Emitter) -> None:
        """One call."""
        if (target := emit.target(self.inputs[0])) is not None:
            dx, accumulate = target
            dy = self.as_image(emit.gradient(self.output))
            emit.call("avg_pool2d_backward", dy, dx, accumulate=accumulate, **self.window())


@final
class MaxPool(_MaxPool):
    """Maximum over windows."""

    def window(self) -> dict[str, Any]:
        """As the node says."""
        return _node_window(self)


@final
class AveragePool(_AveragePool):
    """Mean over windows; padding is not counted."""

    def window(self) -> dict[str, Any]:
        """As the node says."""
        return _node_window(self)


@final
class GlobalMaxPool(_MaxPool):
    """Maximum of each channel."""

    def window(self) -> dict[str, Any]:
        """The whole image."""
        return _whole_image(self)


@final
class GlobalAveragePool(_AveragePool):
    """Mean of each channel."""

    def window(self) -> dict[str, Any]:
        """The whole image."""
        return _whole_image(self)


def _node_window(operation: Operation) -> dict[str, Any]:
    return {name: operation.pair(name) for name in ("kernel", "stride", "padding")}


def _whole_image(operation: Operation) -> dict[str, Any]:
    _, height, width, _ = operation.shapes[operation.inputs[0]]
    return {"kernel": (height, width), "stride": (height, width), "padding": (0, 0)}
