"""What comes out: a class with its probability, or a mask, for every picture; or what was wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.images import resized_rows
from ringlet.inference.description import Description
from ringlet.inference.preprocessing import Size
from ringlet.inference.runtimes.contract import Outputs

THRESHOLD = 0.5
_NOT_FINITE = "the network's outputs are not finite numbers: its weights are damaged, or training has diverged"


@dataclass(frozen=True)
class Prediction:
    """The result for one picture. If ``error`` is not None, everything else but ``name`` is None."""

    name: str
    """The path, or what else the caller called it."""
    class_index: int | None = None
    """Classification: the most probable class."""
    label: str | None = None
    probability: float | None = None
    """Of that class."""
    probabilities: NDArray[np.float32] | None = field(default=None, repr=False)
    """Of all classes."""
    mask: NDArray[np.uint8] | None = field(default=None, repr=False)
    """Segmentation: the class of every pixel, (height, width) of the picture; 0 is background."""
    share: float | None = None
    """Segmentation: the share of pixels that are not background."""
    error: str | None = None
    """What was wrong with the picture."""
    labels: tuple[str, ...] = field(default=(), repr=False)
    """The names of all classes."""

    def top(self, count: int) -> list[tuple[str, float]]:
        """The ``count`` most probable labels with their probabilities, most probable first; of equal ones the first."""
        if self.probabilities is None:
            return []
        order = np.argsort(-self.probabilities, kind="stable")[:count].tolist()
        return [(self.labels[index], float(self.probabilities[index])) for index in order]


class Interpreter:
    """Turns a network's outputs into predictions."""

    def __init__(self, description: Description, threshold: float) -> None:
        self._description = description
        self._threshold = threshold
        self._labels = tuple(description.label(index) for index in range(description.num_classes))

    def __call__(self, name: str, outputs: Outputs, size: Size) -> Prediction:
        """The prediction for a picture of ``size`` from ``outputs`` of one sample."""
        if not np.isfinite(outputs).all():
            return Prediction(name, error=f"{name}: {_NOT_FINITE}")
        if self._description.task == "segmentation":
            return self._mask(name, outputs, size)
        return self._class(name, outputs)

    def _class(self, name: str, outputs: Outputs) -> Prediction:
        if len(outputs) == 1:
            outputs = np.array([1 - outputs[0], outputs[0]], np.float32)
            index = int(outputs[1] >= self._threshold)
        else:
            index = int(outputs.argmax())
        return Prediction(name, index, self._labels[index], float(outputs[index]), outputs, labels=self._labels)

    def _mask(self, name: str, outputs: Outputs, size: Size) -> Prediction:
        """Probabilities brought to the picture's size first, then decided: edges stay smooth."""
        mask: NDArray[Any] = np.zeros(size, np.uint8 if len(outputs) <= 256 else np.uint16)
        if len(outputs) == 1:
            for rows, plane in resized_rows(outputs[0], size):
                mask[rows] = plane >= self._threshold
        else:
            best = np.full(size, -np.inf, np.float32)
            for index, output in enumerate(outputs):
                for rows, plane in resized_rows(output, size):
                    mask[rows][plane > best[rows]] = index
                    np.maximum(best[rows], plane, out=best[rows])
        return Prediction(name, mask=mask, share=float((mask != 0).mean()), labels=self._labels)
