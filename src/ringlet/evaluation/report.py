"""The report of an evaluation as a value: what ``ringlet evaluate`` prints, writes as JSON and shows on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data.source import Source, files_of
from ringlet.errors import ConfigError
from ringlet.evaluation.classes import ClassTally, MaskTally
from ringlet.evaluation.scores import Calibration, ClassScores, Example, OutputScores, averages, plain
from ringlet.evaluation.tally import NUM_EXAMPLES, Tally
from ringlet.evaluation.values import LabelTally, NumberTally

_TALLIES: dict[str, type[Tally]] = {
    "classification": ClassTally,
    "multilabel": LabelTally,
    "segmentation": MaskTally,
    "regression": NumberTally,
}
NUM_CONFUSIONS = 20


@dataclass(frozen=True)
class Confusion:
    """How many samples (of masks: pixels) of one class were taken for another."""

    truth: str
    predicted: str
    count: int
    share: float
    """Of all that are of the true class."""


@dataclass(frozen=True)
class Report:
    """What an evaluation found. What the task does not have is empty or None."""

    task: str
    split: str
    """Which data: ``test``, ``validation`` or ``train``."""
    num_samples: int
    metrics: dict[str, float]
    """Loss and metrics, as :meth:`ringlet.Trainer.evaluate` gives them."""
    classes: tuple[ClassScores, ...] = ()
    averages: dict[str, dict[str, float]] = field(default_factory=dict)
    """``macro``, ``weighted`` and, of labels, ``micro`` means of precision, recall, F1 (of masks: IoU and dice)."""
    outputs: tuple[OutputScores, ...] = ()
    """Regression: the errors of every output."""
    confusion: NDArray[np.int64] | None = field(default=None, compare=False)
    """``[truth, predicted]``: numbers of samples or pixels; None for more than 1,000 classes."""
    calibration: Calibration | None = None
    examples: dict[str, tuple[Example, ...]] = field(default_factory=dict)
    """``most_confident_wrong`` and ``least_likely_truth`` of classes and labels, ``worst`` of masks and numbers."""
    tta: str | None = None
    """Test-time augmentation that the outputs are means of."""
    dataset: str = ""
    """The name of the data set."""
    masks: dict[int, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)
    """Of the examples, by index: the predicted classes of pixels."""
    source: Source | None = field(default=None, repr=False, compare=False)
    """The samples, for pictures of them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of classes, labels or outputs."""
        return tuple(one.name for one in self.classes) + tuple(one.name for one in self.outputs)

    def confusions(self, limit: int = NUM_CONFUSIONS) -> list[Confusion]:
        """The classes that are confused most often, the most frequent pair first."""
        if self.confusion is None:
            return []
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        places = np.argsort(-wrong, axis=None, kind="stable")[:limit]
        truths, predicted = (found.tolist() for found in np.unravel_index(places, wrong.shape))
        supports = self.confusion.sum(axis=1).tolist()
        return [
            Confusion(self.names[row], self.names[column], int(wrong[row, column]), wrong[row, column] / supports[row])
            for row, column in zip(truths, predicted, strict=True)
            if wrong[row, column]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON takes."""
        document: dict[str, Any] = {
            "task": self.task,
            "dataset": self.dataset,
            "split": self.split,
            "num_samples": self.num_samples,
            "tta": self.tta,
            "metrics": {name: plain(value) for name, value in self.metrics.items()},
            "classes": [asdict(one) for one in self.classes],
            "averages": self.averages,
            "outputs": [{name: plain(value) for name, value in asdict(one).items()} for one in self.outputs],
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "top_confusions": [asdict(one) for one in self.confusions()],
            "calibration": None,
        }
        if self.calibration is not None:
            document["calibration"] = {
                **asdict(self.calibration),
                "bins": [asdict(one) for one in self.calibration.bins],
            }
        examples = {
            kind: [{name: plain(value) for name, value in asdict(one).items()} for one in found]
            for kind, found in self.examples.items()
        }
        return document | {"examples": examples}

    def write(self, folder: Path | str) -> list[Path]:
        """Write ``report.json``, tables and pictures into a folder, which is made; gives their paths."""
        from ringlet.evaluation.files import write_report

        return write_report(self, Path(folder))


def make_tally(task: str, names: Sequence[str], num_outputs: int, num_examples: int = NUM_EXAMPLES) -> Tally:
    """What counts the outputs of a network for a task."""
    if task not in _TALLIES:
        raise ConfigError(f"no report for task '{task}': expected {', '.join(_TALLIES)}")
    if num_outputs == 1 and len(names) == 1 and task in ("classification", "segmentation"):
        names = ("background" if task == "segmentation" else f"not {names[0]}", names[0])
    return _TALLIES[task](names, num_outputs, num_examples)


def make_report(
    tally: Tally,
    source: Source,
    metrics: Mapping[str, float],
    comm: Communicator,
    *,
    split: str,
    tta: str | None = None,
    dataset: str = "",
) -> Report:
    """Put the tallies of all ranks together; every rank must call, and all get the same report."""
    task: str = source.task
    tally.merge(comm)
    found = tally.findings()
    examples = {
        kind: tuple(replace(one, file=_file_of(source, one.index)) for one in listed)
        for kind, listed in found.examples.items()
    }
    return Report(
        task,
        split,
        tally.num_samples,
        dict(metrics),
        found.classes,
        averages(found.classes, micro=task == "multilabel") if found.classes else _means(found.outputs),
        found.outputs,
        found.confusion,
        found.calibration,
        examples,
        tta,
        dataset,
        found.masks,
        source,
    )


def _means(outputs: Sequence[OutputScores]) -> dict[str, dict[str, float]]:
    """Plain means over outputs, where all of them are finite."""
    if not outputs:
        return {}
    columns = {name: [getattr(one, name) for one in outputs] for name in ("mae", "rmse", "r2", "bias")}
    return {"macro": {name: sum(column) / len(column) for name, column in columns.items() if None not in column}}


def _file_of(source: Source, index: int) -> str:
    """The first file of a sample, its image; empty if it has none of its own."""
    return next(map(str, files_of(source, index)), "")
