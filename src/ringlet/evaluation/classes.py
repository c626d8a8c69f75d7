"""Tallies of classes: of whole samples, and of the pixels of masks."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.evaluation.examples import Worst
from ringlet.evaluation.scores import ClassScores, Example
from ringlet.evaluation.tally import CALIBRATION_COUNTS, THRESHOLD, Findings, Tally, mismatch, name_of

MAX_MATRIX_CLASSES = 1000
"""Of more classes no matrix is kept, only the counts of each."""
WRONG, UNLIKELY, WORST = "most_confident_wrong", "least_likely_truth", "worst"


@final
class ClassTally(Tally):
    """One class per sample: the largest output; with a single output whether it reaches one half."""

    kinds: ClassVar[tuple[str, ...]] = (WRONG, UNLIKELY)

    def count_shapes(self) -> dict[str, tuple[int, ...]]:
        """Counts of classes and of confidences."""
        return class_counts(self.num_outputs)

    def num_sums(self) -> int:
        """All are counts."""
        return 0

    def take(self, indices: NDArray[np.int64], outputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Count samples, ``outputs (n, K)`` and classes ``(n,)`` or one-hot ``(n, K)``."""
        probabilities = two_sided(outputs)
        truth = true_classes(probabilities, outputs, targets)
        predicted = probabilities.argmax(axis=1)
        confidence = np.take_along_axis(probabilities, predicted[:, None], axis=1)[:, 0]
        of_truth = np.take_along_axis(probabilities, truth[:, None], axis=1)[:, 0]
        self.num_samples += len(indices)
        count_classes(self, truth, predicted, probabilities.shape[1])
        self.count_confidences(confidence, predicted == truth)

        def details(place: int) -> dict[str, Any]:
            parts = truth[place], predicted[place], confidence[place], of_truth[place]
            return dict(
                zip(("truth", "predicted", "confidence", "of_truth"), (one.item() for one in parts), strict=True)
            )

        wrong = np.flatnonzero(predicted != truth)
        self.worst[WRONG].offer(indices[wrong], confidence[wrong], lambda place: details(int(wrong[place])))
        self.worst[UNLIKELY].offer(indices, 1 - of_truth, details)

    def findings(self) -> Findings:
        """Scores of classes, confusion, calibration, the worst samples."""
        examples = {kind: self._examples(found) for kind, found in self.worst.items()}
        return Findings(
            scores_of(self, masks=False),
            confusion=self.counts.get("confusion"),
            calibration=self.calibration(),
            examples=examples,
        )

    def _examples(self, found: Worst) -> tuple[Example, ...]:
        return tuple(
            Example(
                one.index,
                one.score,
                truth=name_of(self.names, one.details["truth"]),
                predicted=name_of(self.names, one.details["predicted"]),
                confidence=one.details["confidence"],
                truth_confidence=one.details["of_truth"],
            )
            for one in found.found
        )


@final
class MaskTally(Tally):
    """The class of every pixel; examples are the images with the lowest mean IoU, as the metric ``iou`` has it."""

    kinds: ClassVar[tuple[str, ...]] = (WORST,)

    def count_shapes(self) -> dict[str, tuple[int, ...]]:
        """Counts of pixels."""
        return class_counts(self.num_outputs)

    def num_sums(self) -> int:
        """All are counts."""
        return 0

    def take(self, indices: NDArray[np.int64], outputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Count samples, ``outputs (n, K, H, W)`` and classes ``(n, H, W)`` or masks ``(n, 1, H, W)``."""
        if outputs.ndim != 4:
            raise mismatch("masks", outputs, targets)
        single = outputs.shape[1] == 1
        probabilities = two_sided(outputs)
        truth = true_classes(probabilities, outputs, targets)
        predicted = probabilities.argmax(axis=1)
        confidence = probabilities.max(axis=1)
        num_classes = probabilities.shape[1]
        self.num_samples += len(indices)
        count_classes(self, truth, predicted, num_classes)
        self.count_confidences(confidence, predicted == truth)
        overlaps = mean_overlaps(truth, predicted, num_classes, first=1 if single else 0)
        dtype = np.uint8 if num_classes <= 256 else np.uint16

        def details(place: int) -> dict[str, Any]:
            return {"iou": float(overlaps[place]), "mask": predicted[place].astype(dtype)}

        self.worst[WORST].offer(indices, 1 - overlaps, details)

    def findings(self) -> Findings:
        """Scores of classes, confusion and calibration over pixels, the worst images."""
        found = self.worst[WORST].found
        return Findings(
            scores_of(self, masks=True),
            confusion=self.counts.get("confusion"),
            calibration=self.calibration(),
            examples={WORST: tuple(Example(one.index, one.score, iou=one.details["iou"]) for one in found)},
            masks={one.index: one.details["mask"] for one in found},
        )


def class_counts(num_outputs: int) -> dict[str, tuple[int, ...]]:
    """What is counted of classes; one output tells two of them apart."""
    num_classes = max(num_outputs, 2)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("right", "predicted", "support"), (num_classes,))
    matrix = {"confusion": (num_classes, num_classes)} if num_classes <= MAX_MATRIX_CLASSES else {}
    return shapes | matrix | CALIBRATION_COUNTS


def two_sided(outputs: NDArray[Any]) -> NDArray[Any]:
    """Probabilities of at least two classes ``(n, K, …)``; one output is that of the second class.

    As it decides at one half, exactly one half is the second class.
    """
    if outputs.shape[1] > 1:
        return outputs
    yes = outputs[:, 0].astype(np.float64)
    sides = np.stack([1 - yes, yes], axis=1)
    sides[:, 0][yes == THRESHOLD] = np.nextafter(THRESHOLD, 0)
    return sides


def true_classes(probabilities: NDArray[Any], outputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.int64]:
    """The class of every sample or pixel ``(n, …)``."""
    plain = outputs.shape[:1] + outputs.shape[2:]
    if targets.shape == outputs.shape and outputs.shape[1] == 1:
        return (targets[:, 0] >= THRESHOLD).astype(np.int64)
    if targets.shape == outputs.shape:
        return np.asarray(targets.argmax(axis=1), np.int64)
    if targets.shape != plain or (targets.size and not 0 <= targets.min() <= targets.max() < probabilities.shape[1]):
        raise mismatch("classes", outputs, targets)
    return np.asarray(targets, np.int64)


def count_classes(tally: Tally, truth: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int) -> None:
    """Add to the counts of every class, and to the confusion matrix ``[truth, predicted]`` if they are not too many."""
    truth, predicted = truth.ravel(), predicted.ravel()
    for name, classes in (("right", truth[truth == predicted]), ("predicted", predicted), ("support", truth)):
        tally.counts[name] += np.bincount(classes, minlength=num_classes)
    matrix = tally.counts.get("confusion")
    if matrix is not None and len(truth) < matrix.size:
        np.add.at(matrix, (truth, predicted), 1)
    elif matrix is not None:
        matrix += np.bincount(truth * num_classes + predicted, minlength=matrix.size).reshape(matrix.shape)


def scores_of(tally: Tally, *, masks: bool) -> tuple[ClassScores, ...]:
    """The scores of all classes from their counts."""
    rows = zip(*(tally.counts[name].tolist() for name in ("right", "predicted", "support")), strict=True)
    return tuple(ClassScores.of(name_of(tally.names, index), *row, masks=masks) for index, row in enumerate(rows))


def mean_overlaps(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int, *, first: int
) -> NDArray[np.float64]:
    """The mean IoU of each image over the classes from ``first`` on that occur in it; 1 if none does."""
    offsets = (np.arange(len(truth)) * num_classes).reshape(-1, *[1] * (truth.ndim - 1))

    def counted(classes: NDArray[np.int64], chosen: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        codes = classes + offsets
        codes = codes.ravel() if chosen is None else codes[chosen]
        return np.bincount(codes, minlength=len(truth) * num_classes).reshape(-1, num_classes)[:, first:]

    both = counted(truth, truth == predicted)
    union = counted(truth) + counted(predicted) - both
    num_found = (union > 0).sum(axis=1)
    totals = (both / np.maximum(union, 1)).sum(axis=1)
    return np.where(num_found > 0, totals / np.maximum(num_found, 1), 1.0)
