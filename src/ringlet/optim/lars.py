"""LARS: a learning rate per parameter array, for very large batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from ringlet.component import option
from ringlet.errors import UsageError
from ringlet.kernels.contract import Floats, Kernels
from ringlet.optim.base import Optimizer, State, UpdateContext
from ringlet.optim.segments import Segment, SegmentNorms, check_tiling

ADAPTED_ROLES = frozenset({"weight"})
"""Biases and batch normalisation's scale and shift are neither adapted nor decayed."""

CHUNK = 1 << 16
"""Scaled gradients are held for this many elements at a time, so that the caller's gradients stay as they are."""


@final
class LARS(Optimizer):
    """Layer-wise adaptive rate scaling, for each parameter array by itself::

        ratio = trust * |w| / (|g| + weight_decay * |w| + epsilon)        1 if |w| or |g| is 0
        v     = momentum * v + lr * ratio * (g + weight_decay * w)
        w    -= v                 with Nesterov  w -= lr * ratio * (g + weight_decay * w) + momentum * v

    For biases, scales and shifts ratio is 1 and weight_decay 0. You, Gitman and Ginsburg, *Large batch training of
    convolutional networks*, 2017 (arXiv 1708.03888); without biases and batch normalisation as in Goyal et al., 2017.

    The norms are over whole arrays. When a slice cuts an array its update needs ``segment_norms``: each rank computes
    :func:`segment_squares` of its slice, these are added over ranks by name, and their roots are passed to ``update``.
    """

    name: ClassVar[str] = "lars"
    needs_segments: ClassVar[bool] = True
    learning_rate: float = option(0.1, "learning rate", gt=0)
    momentum: float = option(0.9, "share of the last update that is kept", ge=0, lt=1)
    nesterov: bool = option(False, "Nesterov's form of momentum")
    weight_decay: float = option(0.0, "weight decay", ge=0)
    trust: float = option(0.001, "trust coefficient: how far an array moves relative to its norm", gt=0)
    epsilon: float = option(0.0, "added to denominators", ge=0)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``velocity``, if there is momentum; it contains the learning rate, as in the paper."""
        return ("velocity",) if self.momentum > 0 else ()

    def ratio(self, norms: SegmentNorms) -> float:
        """The trust ratio of an adapted array."""
        if norms.parameters == 0 or norms.gradients == 0:
            return 1.0
        return self.trust * norms.parameters / (norms.gradients + self.weight_decay * norms.parameters + self.epsilon)

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        check_tiling(context.segments, parameters.size, f"optimizer '{self.name}'")
        velocity = state["velocity"] if self.momentum > 0 else None
        scratch = np.empty(min(CHUNK, parameters.size), parameters.dtype)
        for segment in context.segments:
            rate, decay = context.learning_rate, 0.0
            if segment.role in ADAPTED_ROLES:
                rate *= self.ratio(self._norms(parameters, gradients, segment, context))
                decay = self.weight_decay
            for start in range(segment.start, segment.stop, CHUNK):
                part = slice(start, min(start + CHUNK, segment.stop))
                scaled = np.multiply(gradients[part], rate, out=scratch[: part.stop - part.start])
                context.kernels.sgd_update(
                    parameters[part],
                    scaled,
                    None if velocity is None else velocity[part],
                    learning_rate=1.0,
                    momentum=self.momentum,
                    nesterov=self.nesterov,
                    weight_decay=rate * decay,
                    decoupled=False,
                )

    def _norms(self, parameters: Floats, gradients: Floats, segment: Segment, context: UpdateContext) -> SegmentNorms:
        if context.segment_norms is not None and segment.name in context.segment_norms:
            return context.segment_norms[segment.name]
        if segment.is_cut:
            raise UsageError(
                f"optimizer '{self.name}': the slice holds {segment.size} of {segment.whole} elements of "
                f"'{segment.name}', so its norms are unknown; pass segment_norms over whole arrays (see "
                "segment_squares)"
            )
        part = slice(segment.start, segment.stop)
        squares = context.kernels.sum_squares(parameters[part]), context.kernels.sum_squares(gradients[part])
        return SegmentNorms(math.sqrt(squares[0]), math.sqrt(squares[1]))


def segment_squares(
    parameters: Floats, gradients: Floats, segments: Sequence[Segment], kernels: Kernels
) -> dict[str, SegmentNorms]:
    """Sums of squares over the part of each adapted array that lies in this slice.

    Added over all slices by name, their square roots are the ``segment_norms`` of :meth:`LARS.update`.
    """
    return {
        segment.name: SegmentNorms(
            kernels.sum_squares(parameters[segment.start : segment.stop]),
            kernels.sum_squares(gradients[segment.start : segment.stop]),
        )
        for segment in segments
        if segment.role in ADAPTED_ROLES
    }
