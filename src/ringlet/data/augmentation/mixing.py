"""Mixtures: a sample joined with another one of the data set, chosen by a hash, and their targets with it.

Classes become shares of classes, of which a cross-entropy is the same mixture of the losses of both classes.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import option
from ringlet.data.augmentation.base import Draw, Mixture, restored
from ringlet.data.source import Samples

_MIX_CHANCE, _MIX_PARTNER, _MIX_FIRST, _MIX_SECOND = range(540, 544)
_CUT_CHANCE, _CUT_PARTNER, _CUT_FIRST, _CUT_SECOND, _ROW, _COLUMN = range(544, 550)


@final
class MixUp(Mixture):
    """A weighted mean of two samples and of their targets (Zhang et al., 2018)."""

    name: ClassVar[str] = "mixup"
    order: ClassVar[int] = 200
    chance_kind: ClassVar[int] = _MIX_CHANCE
    partner_kind: ClassVar[int] = _MIX_PARTNER
    blends_pixels: ClassVar[bool] = True
    alpha: float = option(0.2, "of Beta(alpha, alpha), from which the weight is drawn", gt=0, le=2)

    def mix(self, samples: Samples, partners: Samples, draw: Draw) -> Samples:
        """The means."""
        weights = beta(draw, self.alpha, _MIX_FIRST, _MIX_SECOND).astype(np.float32)
        inputs = restored(_mean(samples[0], partners[0], weights), samples[0])
        return inputs, _mean(samples[1], partners[1], weights).astype(samples[1].dtype)


@final
class CutMix(Mixture):
    """A rectangle of another sample pasted in; classes by their areas (Yun et al., 2019), masks pasted likewise."""

    name: ClassVar[str] = "cutmix"
    order: ClassVar[int] = 210
    chance_kind: ClassVar[int] = _CUT_CHANCE
    partner_kind: ClassVar[int] = _CUT_PARTNER
    alpha: float = option(1.0, "of Beta(alpha, alpha), from which the share that is kept is drawn", gt=0, le=2)

    def mix(self, samples: Samples, partners: Samples, draw: Draw) -> Samples:
        """The pasted samples; a rectangle that reaches over the edge is cut there, and counts as it is."""
        inputs, targets = samples[0].copy(), samples[1].copy()
        height, width = inputs.shape[2:]
        sides = np.sqrt(1 - beta(draw, self.alpha, _CUT_FIRST, _CUT_SECOND))
        kept = np.ones(len(inputs), np.float32)
        edges = [_edges(draw.uniform(kind), sides, size) for kind, size in ((_ROW, height), (_COLUMN, width))]
        for place, (top, bottom, left, right) in enumerate(zip(*edges[0], *edges[1], strict=True)):
            box = (..., slice(top, bottom), slice(left, right))
            inputs[place][box] = partners[0][place][box]
            if targets.ndim >= 3:
                targets[place][box] = partners[1][place][box]
            kept[place] = 1 - (bottom - top) * (right - left) / (height * width)
        return inputs, targets if targets.ndim >= 3 else _mean(targets, partners[1], kept).astype(targets.dtype)


def beta(draw: Draw, alpha: float, first: int, second: int) -> NDArray[np.float64]:
    """A number of Beta(alpha, alpha) for every sample, by Joehnk's method: pure, whatever the library's generators do.

    ``u^(1/alpha) / (u^(1/alpha) + v^(1/alpha))`` of the first pair whose denominator is at most one.
    """
    result = np.full(len(draw.uniform(first)), 0.5)
    is_open = np.ones(len(result), bool)
    for attempt in range(200):
        logs = [np.log(np.maximum(draw.uniform(kind, attempt), 1e-300)) / alpha for kind in (first, second)]
        total = np.logaddexp(*logs)
        taken = is_open & (total <= 0)
        result[taken] = np.exp(logs[0] - total)[taken]
        is_open &= ~taken
        if not is_open.any():
            break
    return result


def _mean(own: NDArray[Any], others: NDArray[Any], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    by_sample = weights.reshape(-1, *[1] * (own.ndim - 1))
    return np.asarray(own.astype(np.float32) * by_sample + others.astype(np.float32) * (1 - by_sample), np.float32)


def _edges(centres: NDArray[np.float64], sides: NDArray[np.float64], size: int) -> tuple[list[int], list[int]]:
    """Where rectangles begin and end along one axis."""
    half = sides * size / 2
    starts, ends = (np.clip(np.rint(centres * size + sign * half), 0, size).astype(np.int64) for sign in (-1, 1))
    return starts.tolist(), ends.tolist()
