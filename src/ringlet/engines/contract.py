"""What every engine offers: a replica of a network with flat parameters, gradients and state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.errors import UsageError
from ringlet.models.spec import ModelSpec, ParameterInfo
from ringlet.timeline import NO_TIMELINE, Timeline

Floats = NDArray[np.floating[Any]]

OnReady = Callable[[int, int], None]
"""Called with ``start, stop`` when these elements of the flat gradients are final."""


@dataclass(frozen=True)
class FlatTensors:
    """Named tensors that live in one flat buffer, in the order in which they were declared."""

    flat: Floats
    views: dict[str, Floats]

    @classmethod
    def allocate(cls, infos: Iterable[ParameterInfo], dtype: DTypeLike, flat: Floats | None = None) -> FlatTensors:
        """Lay ``infos`` out one after the other in ``flat``, a foreign buffer, or in a new one filled with zeros."""
        infos = tuple(infos)
        size = sum(info.size for info in infos)
        if flat is None:
            flat = np.zeros(size, dtype)
        _check_foreign(flat, size, np.dtype(dtype))
        views: dict[str, Floats] = {}
        start = 0
        for info in infos:
            views[info.name] = flat[start : start + info.size].reshape(info.shape)
            start += info.size
        return cls(flat, views)


@dataclass(frozen=True)
class StepOutput:
    """What one pass over a batch gives: sums and counts, so that averages can weigh by samples."""

    loss_sum: float
    """Sum over the samples of each sample's loss, without the step's scale."""
    count: int
    """Number of samples."""
    outputs: Floats
    """``(count, *output_shape)``: what the last node gives (probabilities after softmax or sigmoid)."""


class Replica(Protocol):
    """One copy of a network that can learn and predict."""

    @property
    def spec(self) -> ModelSpec:
        """The network."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, of parameters and activations."""

    @property
    def parameters(self) -> FlatTensors:
        """Trainable tensors in the order of ``spec.parameters``."""

    @property
    def gradients(self) -> FlatTensors:
        """Gradients of the last ``loss_and_gradients``, same order; a replica may be given the buffer for them."""

    @property
    def state(self) -> FlatTensors:
        """Running statistics in the order of ``spec.state``."""

    def loss_and_gradients(
        self,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        *,
        scale: float | None = None,
        seed: int = 0,
        step: int = 0,
        shard: int = 0,
        timeline: Timeline = NO_TIMELINE,
        on_ready: OnReady | None = None,
    ) -> StepOutput:
        """A training pass; ``gradients`` become ``scale`` (default one over n) times those of the summed loss.

        An empty batch gives zeros. ``timeline`` is told ``"forward"`` at the start and ``"backward"`` once the loss has
        been computed.

        ``on_ready(start, stop)`` is called during the backward pass, by the same thread, as soon as elements
        ``start:stop`` of ``gradients.flat`` are final: the replica neither reads nor writes them any more before the
        next call of one of its methods. So an exchange of them may begin, and may change them. Every element is
        reported exactly once, in ranges as large as become final together. Their order depends on the network alone:
        equal on all ranks and in every step, an empty batch excepted, whose single range is the whole buffer.
        """

    def evaluate(self, inputs: NDArray[Any], targets: NDArray[Any]) -> StepOutput:
        """Loss and outputs in inference mode; nothing changes."""

    def predict(self, inputs: NDArray[Any]) -> Floats:
        """Outputs ``(n, *output_shape)`` in inference mode."""


def _check_foreign(flat: Floats, size: int, dtype: np.dtype[Any]) -> None:
    if flat.ndim != 1 or flat.size != size or flat.dtype != dtype or not flat.flags.c_contiguous:
        raise UsageError(
            f"the flat buffer has shape {flat.shape} and dtype {flat.dtype}; "
            f"expected a contiguous one-dimensional buffer of {size} {dtype} values"
        )
