"""Does an export compute what the training engine computes? Measured on samples, and refused if it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.export.samples import Samples
from ringlet.inference.artifact import Runtime
from ringlet.inference.description import Weights
from ringlet.inference.predictor import THRESHOLD
from ringlet.training.loaded_model import LoadedModel

LARGEST: dict[Weights, float] = {"fp32": 1e-4, "fp16": 5e-2}
"""How far any output may be off, relative to the largest output but at least absolutely."""
AGREEMENT: dict[Weights, float] = {"int8": 0.9}
"""On real samples: the least share of samples (or pixels) that keep their class."""
_CHUNK = 32


@dataclass(frozen=True)
class Parity:
    """How an export's outputs compare with the engine's."""

    num_samples: int
    origin: str
    is_real: bool
    largest: float
    """The largest absolute difference of an output."""
    mean: float
    """The mean absolute difference."""
    agreement: float
    """The share of samples, or of pixels, with the same class."""
    dice: float | None
    """Segmentation: the mean dice coefficient between the two masks of a sample."""
    scale: float
    """The largest absolute output of the engine, at least 1."""

    def check(self, weights: Weights) -> None:
        """Refuse an export that is too far off."""
        limit = LARGEST.get(weights)
        if not np.isfinite(self.largest) or (limit is not None and self.largest > limit * self.scale):
            allowed = "" if limit is None else f", at most {limit * self.scale:.1e} is allowed for {weights} weights"
            raise ModelFileError(
                f"the export does not compute what the training engine computes: outputs differ by up to "
                f"{self.largest:.1e}{allowed} ({self.num_samples} samples, {self.origin}). Nothing was written"
            )
        least = AGREEMENT.get(weights)
        if least is not None and self.is_real and self.agreement < least:
            raise ModelFileError(
                f"only {100 * self.agreement:.1f}% of the classes survive {weights} weights, at least {100 * least:.0f}"
                f"% must ({self.num_samples} samples, {self.origin}). Nothing was written. Calibrate with more samples "
                "(--samples), with data nearer to what it is for (--calibration), or use fp16"
            )


def compare(model: LoadedModel, runtime: Runtime, samples: Samples) -> Parity:
    """Run the engine and the export on all samples."""
    sums = _Sums()
    for start in range(0, len(samples.values), _CHUNK):
        values = samples.values[start : start + _CHUNK]
        inputs = np.moveaxis(values, -1, 1) if values.ndim == 4 else values
        sums.add(model.predict(inputs), runtime.run(values))
    return Parity(
        len(samples.values),
        samples.origin,
        samples.is_real,
        sums.largest,
        sums.total / max(sums.num_outputs, 1),
        sums.num_same / max(sums.num_decisions, 1),
        float(np.mean(sums.dice)) if sums.dice else None,
        max(sums.scale, 1.0),
    )


class _Sums:
    """What is added up over chunks."""

    def __init__(self) -> None:
        self.largest = self.total = self.scale = 0.0
        self.num_outputs = self.num_same = self.num_decisions = 0
        self.dice: list[float] = []

    def add(self, expected: NDArray[Any], found: NDArray[Any]) -> None:
        difference = np.abs(found.astype(np.float64) - expected)
        # A NaN must not vanish in a maximum.
        self.largest = float(np.maximum(self.largest, difference.max(initial=0.0)))
        self.total += float(difference.sum())
        self.scale = max(self.scale, float(np.abs(expected).max(initial=0.0)))
        self.num_outputs += difference.size
        classes, other = decide(expected), decide(found)
        self.num_same += int((classes == other).sum())
        self.num_decisions += classes.size
        if classes.ndim == 3:
            self.dice += [_dice(one, two) for one, two in zip(classes, other, strict=True)]


def decide(outputs: NDArray[Any]) -> NDArray[np.int64]:
    """The class of every sample or pixel."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] >= THRESHOLD).astype(np.int64)
    return np.asarray(outputs.argmax(axis=1), np.int64)


def _dice(one: NDArray[np.int64], two: NDArray[np.int64]) -> float:
    """Of pixels that are not background and of one class; two empty masks agree."""
    total = int((one != 0).sum() + (two != 0).sum())
    return 1.0 if total == 0 else 2.0 * int(((one == two) & (one != 0)).sum()) / total
