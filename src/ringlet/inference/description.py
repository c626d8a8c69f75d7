"""What every artifact says about itself: one JSON text, carried inside the file of each target.

With it a consumer needs nothing but the artifact: which network, what it takes, what its outputs mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ringlet.data.normalization import Normalization
from ringlet.data.source import TASKS, Task
from ringlet.data.table_schema import Schema
from ringlet.errors import ConfigError, ModelFileError, SpecError, show
from ringlet.inference.preprocessing import Preprocessing
from ringlet.io import jsontext
from ringlet.models.module_spec import Network
from ringlet.operations.attributes import check_shape

Weights = Literal["fp32", "fp16", "int8"]

FORMAT = 1
KEY = "ringlet"
"""The name under which artifacts carry the text."""
WEIGHTS: tuple[Weights, ...] = ("fp32", "fp16", "int8")
INPUT, OUTPUT = "images", "outputs"
"""What graphs call their input and output."""
_MAX_LABELS = 1 << 20


@dataclass(frozen=True)
class Description:
    """A network, what goes in and what comes out."""

    network: str
    fingerprint: str
    """SHA-256 of the spec."""
    preprocessing: Preprocessing
    output_shape: tuple[int, ...]
    """(K,) of a classifier, (K, H, W) of a segmentation; K is 1 for yes or no."""
    labels: tuple[str, ...] = ()
    weights: Weights = "fp32"
    dataset: str = ""
    version: str = ""
    """Of Ringlet, when the artifact was written."""
    table: Schema | None = None
    """How rows of a table become inputs, if it has learned from one."""
    given_task: Task | None = None
    """What the outputs mean, if it is said."""

    @property
    def task(self) -> Task:
        """What the outputs mean; if it is not said, outputs with a height and a width are masks."""
        return self.given_task or _usual_task(self.output_shape)

    @property
    def num_classes(self) -> int:
        """Two if there is one output that decides between them; else the number of outputs."""
        decides = self.task in ("classification", "segmentation")
        return max(self.output_shape[0], 2) if decides else self.output_shape[0]

    def label(self, index: int) -> str:
        """The name of a class; its number if it has none."""
        if self.output_shape[0] == 1 and len(self.labels) == 1 and self.num_classes == 2:
            other = "background" if self.task == "segmentation" else f"not {self.labels[0]}"
            return self.labels[0] if index else other
        return self.labels[index] if index < len(self.labels) else str(index)

    def to_json(self) -> str:
        """ASCII; :meth:`from_json` reads it."""
        return jsontext.canonical(
            {
                "format": FORMAT,
                "network": self.network,
                "fingerprint": self.fingerprint,
                "task": self.task,
                "preprocessing": self.preprocessing.to_dict(),
                "output_shape": list(self.output_shape),
                "labels": list(self.labels),
                "weights": self.weights,
                "dataset": self.dataset,
                "version": self.version,
                **({} if self.table is None else {"table": self.table.to_dict()}),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Description:
        """The description in ``text``, which may come from a stranger; anything wrong is a ModelFileError."""
        try:
            return cls._parse(jsontext.parse(text))
        except (ValueError, TypeError, KeyError, ConfigError, SpecError) as error:
            raise ModelFileError(f"its description is not one of Ringlet's: {error}") from None

    @classmethod
    def _parse(cls, data: Any) -> Description:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = show(data.get("format")) if isinstance(data, dict) else show(data)
            raise ValueError(f"format {found}, this version of Ringlet reads {FORMAT}")
        texts = [_text(data, key) for key in ("network", "fingerprint", "dataset", "version")]
        shape = check_shape(data["output_shape"])
        check_shape(data["preprocessing"]["input_shape"])
        preprocessing = Preprocessing.from_dict(data["preprocessing"])
        labels = data["labels"]
        if (
            not isinstance(labels, list)
            or len(labels) > _MAX_LABELS
            or not all(isinstance(name, str) for name in labels)
        ):
            raise ValueError("its labels are not a list of texts")
        if data["weights"] not in WEIGHTS:
            raise ValueError(f"weights {show(data['weights'])}, expected {', '.join(WEIGHTS)}")
        table = None if data.get("table") is None else Schema.from_dict(data["table"])
        task = data.get("task")
        if task is not None and task not in TASKS:
            raise ValueError(f"task {show(task)}, expected one of {', '.join(TASKS)}")
        about = tuple(labels), data["weights"], texts[2], texts[3], table, task
        return cls(texts[0], texts[1], preprocessing, shape, *about)


def _usual_task(output_shape: tuple[int, ...]) -> Task:
    return "segmentation" if len(output_shape) == 3 else "classification"


def describe(
    spec: Network,
    normalization: Normalization,
    labels: tuple[str, ...],
    *,
    dataset: str = "",
    weights: Weights = "fp32",
    table: Schema | None = None,
    task: Task | None = None,
) -> Description:
    """The description of a network that was trained with this normalisation."""
    from ringlet import __version__

    preprocessing = Preprocessing(spec.input_shape, normalization)
    return Description(
        spec.name,
        spec.fingerprint(),
        preprocessing,
        spec.output_shape,
        labels,
        weights,
        dataset,
        __version__,
        table,
        task or _usual_task(spec.output_shape),
    )


def _text(data: dict[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {show(value)}, expected a text")
    return value
