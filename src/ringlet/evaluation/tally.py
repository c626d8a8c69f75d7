"""What is counted during the pass: the contract of a tally, what all of them share, and how ranks put theirs together.

Counts are whole numbers and sums are exact, so the result is the same however the samples were spread over ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.errors import DataError
from ringlet.evaluation.exact import ExactSums
from ringlet.evaluation.examples import Found, Worst
from ringlet.evaluation.scores import GRID, NUM_BINS, Calibration, ClassScores, Example, OutputScores
from ringlet.io import encoding

THRESHOLD = 0.5
NUM_EXAMPLES = 16
CALIBRATION_COUNTS: dict[str, tuple[int, ...]] = {
    "bins": (NUM_BINS,),
    "bins_right": (NUM_BINS,),
    "bins_confidence": (NUM_BINS,),
}
_HALF_BITS = 12


@dataclass(frozen=True)
class Findings:
    """What a tally says in the end; what the task does not have is empty or None."""

    classes: tuple[ClassScores, ...] = ()
    outputs: tuple[OutputScores, ...] = ()
    confusion: NDArray[np.int64] | None = None
    calibration: Calibration | None = None
    examples: dict[str, tuple[Example, ...]] = field(default_factory=dict)
    masks: dict[int, NDArray[Any]] = field(default_factory=dict)
    """Of the examples, by index: the predicted classes of pixels."""


class Tally(ABC):
    """Counts over the samples of one rank; :meth:`merge` adds those of all ranks.

    ``names`` are those of classes, labels or outputs, of which the network has ``num_outputs``.
    """

    kinds: ClassVar[tuple[str, ...]]
    """The kinds of examples that are kept."""

    def __init__(self, names: Sequence[str], num_outputs: int, num_examples: int = NUM_EXAMPLES) -> None:
        self.names = tuple(names)
        self.num_outputs = num_outputs
        self.num_samples = 0
        self.counts = {name: np.zeros(shape, np.int64) for name, shape in self.count_shapes().items()}
        self.sums = ExactSums(self.num_sums())
        self.maxima = np.zeros(num_outputs)
        self.worst = {kind: Worst(num_examples) for kind in self.kinds}

    @abstractmethod
    def count_shapes(self) -> dict[str, tuple[int, ...]]:
        """What is counted."""

    @abstractmethod
    def num_sums(self) -> int:
        """How many exact sums are kept."""

    @abstractmethod
    def take(self, indices: NDArray[np.int64], outputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Count samples: ``outputs`` as the network gives them, ``targets`` as the data have them."""

    @abstractmethod
    def findings(self) -> Findings:
        """What was found in all samples."""

    def merge(self, comm: Communicator) -> None:
        """Put the tallies of all ranks together, on all of them; every rank must call."""
        if comm.size == 1:
            return
        for name in sorted(self.counts):
            self.counts[name] = comm.allreduce(self.counts[name])
        own = {
            "num_samples": self.num_samples,
            "sums": self.sums.state,
            "maxima": self.maxima,
            "worst": {
                kind: [(one.score, one.index, one.details) for one in found.found] for kind, found in self.worst.items()
            },
        }
        parts = [encoding.loads(part) for part in comm.allgather_bytes(encoding.dumps(own, "the tally"))]
        self.num_samples = sum(part["num_samples"] for part in parts)
        for rank, part in enumerate(parts):
            if rank != comm.rank:
                self.sums.merge(part["sums"])
                self.maxima = np.fmax(self.maxima, part["maxima"])
                for kind, found in part["worst"].items():
                    self.worst[kind].add(Found(*one) for one in found)

    # -- calibration: the same for classes, pixels and labels ---------------------------------------------------------
    def count_confidences(self, confidences: NDArray[Any], right: NDArray[np.bool_]) -> None:
        """Put predictions into bins by their confidence."""
        units = np.rint(np.clip(np.nan_to_num(confidences), 0, 1).astype(np.float64) * GRID).astype(np.int64).ravel()
        bins = np.maximum(-(-units * NUM_BINS // GRID) - 1, 0)  # the upper edge belongs to a bin
        self.counts["bins"] += np.bincount(bins, minlength=NUM_BINS)
        self.counts["bins_right"] += np.bincount(bins[right.ravel()], minlength=NUM_BINS)
        for half, weight in ((units >> _HALF_BITS, 1 << _HALF_BITS), (units & ((1 << _HALF_BITS) - 1), 1)):
            sums = np.bincount(bins, weights=half, minlength=NUM_BINS)  # in float64: exact below 2^53
            self.counts["bins_confidence"] += sums.astype(np.int64) * weight

    def calibration(self) -> Calibration:
        """That of all samples."""
        return Calibration.of(*(self.counts[name] for name in CALIBRATION_COUNTS))


def name_of(names: Sequence[str], index: int) -> str:
    """The name of a class; its number if it has none."""
    return names[index] if index < len(names) else str(index)


def mismatch(task: str, outputs: NDArray[Any], targets: NDArray[Any]) -> DataError:
    """Targets that a task cannot have."""
    return DataError(
        f"cannot report on {task}: targets of shape {targets.shape} and type {targets.dtype} do not fit outputs of "
        f"shape {outputs.shape}"
    )
