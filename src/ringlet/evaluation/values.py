"""Tallies of several labels per sample, and of numbers."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.evaluation.classes import WORST, WRONG, scores_of
from ringlet.evaluation.scores import Example, OutputScores
from ringlet.evaluation.tally import CALIBRATION_COUNTS, THRESHOLD, Findings, Tally, mismatch, name_of


@final
class LabelTally(Tally):
    """Any number of labels per sample: each output says by itself whether its label applies, from one half up."""

    kinds: ClassVar[tuple[str, ...]] = (WRONG,)

    def count_shapes(self) -> dict[str, tuple[int, ...]]:
        """Counts of labels and of confidences."""
        shape: tuple[int, ...] = (self.num_outputs,)
        return dict.fromkeys(("right", "predicted", "support"), shape) | CALIBRATION_COUNTS

    def num_sums(self) -> int:
        """All are counts."""
        return 0

    def take(self, indices: NDArray[np.int64], outputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Count samples: ``outputs (n, K)`` and ``targets (n, K)`` of 0 and 1."""
        if targets.shape != outputs.shape or outputs.ndim != 2:
            raise mismatch("labels", outputs, targets)
        predicted, truth = outputs >= THRESHOLD, targets >= THRESHOLD
        self.num_samples += len(indices)
        for name, flags in (("right", predicted & truth), ("predicted", predicted), ("support", truth)):
            self.counts[name] += flags.sum(axis=0, dtype=np.int64)
        self.count_confidences(outputs, truth)
        gaps = np.where(predicted != truth, np.abs(outputs.astype(np.float64) - truth), 0.0)
        labels = gaps.argmax(axis=1)
        scores = gaps[np.arange(len(gaps)), labels]

        def details(place: int) -> dict[str, Any]:
            label = int(labels[place])
            return {"label": label, "truth": bool(truth[place, label]), "probability": float(outputs[place, label])}

        wrong = np.flatnonzero(scores > 0)
        self.worst[WRONG].offer(indices[wrong], scores[wrong], lambda place: details(int(wrong[place])))

    def findings(self) -> Findings:
        """Scores of labels, calibration of all probabilities, the samples with the most confident wrong label."""
        examples = []
        for one in self.worst[WRONG].found:
            label, probability = name_of(self.names, one.details["label"]), one.details["probability"]
            truth, predicted = (label, f"not {label}") if one.details["truth"] else (f"not {label}", label)
            confidence = max(probability, 1 - probability)
            examples.append(
                Example(
                    one.index,
                    one.score,
                    truth=truth,
                    predicted=predicted,
                    confidence=confidence,
                    truth_confidence=1 - confidence,
                )
            )
        return Findings(scores_of(self, masks=False), calibration=self.calibration(), examples={WRONG: tuple(examples)})


@final
class NumberTally(Tally):
    """Numbers: exact sums of errors for each output (of pictures: each channel, over all pixels)."""

    kinds: ClassVar[tuple[str, ...]] = (WORST,)

    def count_shapes(self) -> dict[str, tuple[int, ...]]:
        """The number of values of every output."""
        return {"values": (1,)}

    def num_sums(self) -> int:
        """Of |e|, e², e, t and t² of every output."""
        return 5 * self.num_outputs

    def take(self, indices: NDArray[np.int64], outputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Count samples: ``outputs`` and ``targets (n, K, …)``."""
        if targets.shape != outputs.shape or outputs.ndim < 2:
            raise mismatch("numbers", outputs, targets)
        self.num_samples += len(indices)
        truth, predicted = (_columns(values) for values in (targets, outputs))
        errors = predicted - truth
        if len(errors):
            with np.errstate(over="ignore", invalid="ignore"):
                self.sums.add(np.concatenate([np.abs(errors), errors**2, errors, truth, truth**2], axis=1))
                self.maxima = np.fmax(self.maxima, np.abs(errors).max(axis=0))
        self.counts["values"] += len(errors)
        rows = np.ascontiguousarray(errors.reshape(len(indices), -1))
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.sqrt((rows**2).mean(axis=1)) if rows.size else np.zeros(len(indices))

        def details(place: int) -> dict[str, Any]:
            values = {"error": float(spread[place])}
            if outputs.shape[1:] == (1,):
                values |= {"truth": float(targets[place, 0]), "predicted": float(outputs[place, 0])}
            return values

        self.worst[WORST].offer(indices, spread, details)

    def findings(self) -> Findings:
        """Errors of every output, the samples with the largest ones."""
        totals, count = self.sums.totals(), int(self.counts["values"][0])
        scores = tuple(
            OutputScores.of(name_of(self.names, index), count, totals[index :: self.num_outputs], float(largest))
            for index, largest in enumerate(self.maxima.tolist())
        )
        examples = []
        for one in self.worst[WORST].found:
            truth, predicted = (_text(one.details.get(name)) for name in ("truth", "predicted"))
            examples.append(Example(one.index, one.score, "", truth, predicted, error=one.details["error"]))
        return Findings(outputs=scores, examples={WORST: tuple(examples)})


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _columns(values: NDArray[Any]) -> NDArray[np.float64]:
    """One row per sample and pixel, one column per output."""
    return np.moveaxis(values, 1, -1).reshape(-1, values.shape[1]).astype(np.float64)
