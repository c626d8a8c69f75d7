"""Does an export compute what the training engine computes? Measured on samples, and refused if it does not.

The run's own data are the best samples: what the network was made for. Failing that, data that are named; failing that,
noise, and then the report says so. Samples to calibrate a quantised export with are found the same way, without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.config import gather
from ringlet.data import Dataset, dataset_names, load_dataset
from ringlet.data.formats import DATASETS
from ringlet.errors import DataError, ModelFileError, RingletError, UnknownNameError, UsageError
from ringlet.inference.description import Weights
from ringlet.inference.inputs import list_inputs
from ringlet.inference.predictor import THRESHOLD
from ringlet.inference.preprocessing import Preprocessing
from ringlet.training.components import make_dataset
from ringlet.training.loaded_model import LoadedModel
from ringlet.training.run_directory import CONFIG

Part = Literal["validation", "test", "train"]

FOR_COMPARISON: tuple[Part, ...] = ("validation", "test", "train")
FOR_CALIBRATION: tuple[Part, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Samples:
    """Stored values (n, H, W, C) or (n, F), and where they come from."""

    values: NDArray[Any]
    origin: str
    """Such as ``validation data of 'digits'``."""
    is_real: bool = True


@dataclass(frozen=True)
class SampleFinder:
    """Looks for samples of a model that was loaded from ``location``; ``say`` takes remarks."""

    model: LoadedModel
    preprocessing: Preprocessing
    location: Path
    """The model file."""
    given: str | None
    """A data set, a folder or an npz file that the user has named."""
    say: Callable[[str], None]

    def compare(self, count: int) -> Samples:
        """To compare on: the run's validation data, test data or training data, else what was named, else noise."""
        own = self._own(count, FOR_COMPARISON)
        return own or self._named(count, FOR_COMPARISON) or self._noise(count)

    def calibrate(self, count: int) -> Samples:
        """To calibrate with: what was named, else the run's training data."""
        found = self._named(count, FOR_CALIBRATION) or self._own(count, FOR_CALIBRATION)
        if found is None:
            raise DataError(
                "quantisation needs calibration data, and the data of the run cannot be read: name a data set or a "
                "folder of images with --calibration"
            )
        return found

    def _own(self, count: int, parts: tuple[Part, ...]) -> Samples | None:
        config = self.location.parent / CONFIG
        try:
            if config.is_file():
                return self._from_dataset(make_dataset(gather(config).build()), count, parts)
            if self.model.dataset_name:
                return self._from_dataset(self._load(self.model.dataset_name), count, parts)
        except RingletError as error:
            self.say(f"the data that the network was trained on cannot be used: {error}")
        return None

    def _named(self, count: int, parts: tuple[Part, ...]) -> Samples | None:
        if self.given is None:
            return None
        if not Path(self.given).exists():
            try:
                return self._from_dataset(self._load(self.given), count, parts)
            except UnknownNameError:
                raise UsageError(
                    f"--calibration {self.given}: no such file or folder, and no data set of that name "
                    f"({', '.join(dataset_names())})"
                ) from None
        return self._from_files(self.given, count)

    def _load(self, name: str) -> Dataset:
        """A data set by name, its images brought to the network's size."""
        shape = self.preprocessing.input_shape
        if DATASETS.find(name.partition(":")[0]).sizes_itself:
            return load_dataset(name, input_shape=shape)
        dataset = load_dataset(name)
        if dataset.input_shape != shape and len(shape) == 3:
            dataset = load_dataset(name, image_size=(shape[1], shape[2]))
        return dataset

    def _from_dataset(self, dataset: Dataset, count: int, parts: tuple[Part, ...]) -> Samples:
        if dataset.input_shape != self.preprocessing.input_shape:
            raise DataError(
                f"data set '{dataset.name}' has inputs {dataset.input_shape}, the network takes "
                f"{self.preprocessing.input_shape}"
            )
        return samples_of(dataset, self.preprocessing, count, parts)

    def _from_files(self, given: str, count: int) -> Samples:
        """Pictures of a folder or file; what cannot be read is left out."""
        inputs = list_inputs([given], self.preprocessing.input_shape).inputs
        values, reasons = [], []
        for index in _spread(len(inputs), count).tolist():
            item = inputs[index].named()
            try:
                if isinstance(item.picture, np.ndarray):
                    image = self.preprocessing.channels_last(item.picture, item.name)
                    values.append(self.preprocessing.fit(image, item.name)[0])
                else:
                    content = Path(str(item.picture)).read_bytes()
                    values.append(self.preprocessing.decode(content, item.name)[0])
            except (DataError, OSError) as error:
                reasons.append(str(error))
        if not values:
            raise DataError(f"nothing in '{given}' can be used: {reasons[0] if reasons else 'it is empty'}")
        if reasons:
            self.say(f"{len(reasons)} of the files in '{given}' were left out: {reasons[0]}")
        return Samples(np.stack(values), f"images of '{given}'")

    def _noise(self, count: int) -> Samples:
        rng = np.random.default_rng(0)
        shape = (count, *self.preprocessing.graph_shape)
        if self.preprocessing.dtype == np.uint8:
            values: NDArray[Any] = rng.integers(0, round(self.preprocessing.white) + 1, shape).astype(np.uint8)
        else:
            values = rng.standard_normal(shape).astype(np.float32)
        return Samples(values, "random numbers", is_real=False)


def samples_of(
    dataset: Dataset, preprocessing: Preprocessing, count: int, parts: tuple[Part, ...] = FOR_COMPARISON
) -> Samples:
    """Evenly spread samples of the first of ``parts`` that a data set has."""
    part, source = next((part, found) for part in parts if (found := getattr(dataset, part)) is not None)
    inputs, _ = source.read(_spread(len(source), count))
    if inputs.dtype != preprocessing.dtype:
        raise DataError(f"values of type {inputs.dtype}, the network was trained on {preprocessing.dtype}")
    values = np.ascontiguousarray(np.moveaxis(inputs, 1, -1)) if inputs.ndim == 4 else inputs
    return Samples(values, f"{_TITLES[part]} of '{dataset.name}'")


_TITLES: dict[Part, str] = {"validation": "validation data", "test": "test data", "train": "training data"}


def _spread(total: int, count: int) -> NDArray[np.int64]:
    """``count`` indices of ``total``, evenly spread."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))


# -- comparing ---------------------------------------------------------------------------------------------------------
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

    @property
    def is_exact(self) -> bool:
        """Whether outputs differ by no more than the rounding of float32."""
        return self.largest <= LARGEST["fp32"] * self.scale

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "num_samples": self.num_samples,
            "samples": self.origin,
            "real": self.is_real,
            "largest_difference": self.largest,
            "mean_difference": self.mean,
            "agreement": self.agreement,
            "dice": self.dice,
        }


class Predicts(Protocol):
    """What an export is compared with."""

    def predict(self, images: NDArray[Any]) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``."""


def compare(model: Predicts, run: Callable[[NDArray[Any]], NDArray[Any]], samples: Samples) -> Parity:
    """Run the engine and the export on all samples."""
    sums = _Sums()
    for start in range(0, len(samples.values), _CHUNK):
        values = samples.values[start : start + _CHUNK]
        inputs = np.moveaxis(values, -1, 1) if values.ndim == 4 else values
        sums.add(model.predict(inputs), run(values))
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
