"""Data that are read by index, one sample at a time: PyTorch's map-style data sets and whatever has their methods.

Samples are read when they are needed, under a lock, since people's objects need not be thread-safe. A few of them,
evenly spread, tell at the beginning what all of them are; each is checked against that when it is read. The classes of
all are needed to count and to split them: from ``targets`` or ``labels`` of the data set where these agree with its
samples, else by reading every sample once, unless ``num_classes`` is given.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.data.images import is_grey
from ringlet.data.items import TARGET_NAMES, Item, split_item
from ringlet.data.source import Indices, Samples, Source, Task, Weights, cached, resize_images
from ringlet.data.targets import Targets, Wanted, understand
from ringlet.data.values import Channels, as_array, as_images, check_inputs, is_picture, picture_values
from ringlet.errors import DataError

_NUM_PROBED = 16
_TARGET_ATTRIBUTES = ("targets", "labels", "_labels", "y")


@dataclass(frozen=True)
class Form:
    """What every sample is."""

    input_shape: tuple[int, ...]
    channels: Channels
    is_bytes: bool
    wanted: Wanted
    """Task, number of classes and names."""
    image_size: tuple[int, int] | None = None
    """To which samples of any size are brought."""


@final
class SampleSource:
    """``samples[index]`` for every index; what is not as the others is an error that names the sample."""

    def __init__(self, samples: Any, form: Form, what: str, known: Known) -> None:
        self._samples, self._form, self._what = samples, form, what
        self._lock = threading.Lock()
        self._labels, self._weights, self.is_random = known.labels, known.weights, known.is_random
        self.input_shape = form.input_shape
        assert form.wanted.task is not None, "the probes have told"
        assert form.wanted.num_classes is not None, "the probes have told"
        self.task: Task = form.wanted.task
        self.num_classes = form.wanted.num_classes

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: Indices) -> Samples:
        """Read the samples one after the other."""
        items = [self._item(index) for index in indices.tolist()]
        inputs = np.empty((len(items), *self.input_shape), np.uint8 if self._form.is_bytes else np.float32)
        for row, index, item in zip(inputs, indices.tolist(), items, strict=True):
            row[...] = self._input(item.inputs, index)
        if not items:
            return inputs, np.empty((0,), np.int64)
        places = f"{self._what}, samples {indices[0]} …"
        size = (self.input_shape[1], self.input_shape[2]) if len(self.input_shape) == 3 else None
        stacked = _stacked([item.targets for item in items], places, self._form.image_size)
        found = understand(stacked, self._form.wanted, size, places)
        return inputs, found.read(np.arange(len(items)), places)

    def weights(self, indices: Indices) -> Weights | None:
        """How much the samples count."""
        return None if self._weights is None else self._weights[indices]

    def _item(self, index: int) -> Item:
        with self._lock:
            return split_item(self._samples[index], f"{self._what}[{index}]")

    def _input(self, value: Any, index: int) -> NDArray[Any]:
        form, what = self._form, f"{self._what}[{index}]"
        values = _plain_input(value, form, what)
        if values.shape != form.input_shape or (values.dtype == np.uint8) != form.is_bytes:
            raise DataError(
                f"{what}: an input of shape {values.shape} and type {values.dtype}: expected {form.input_shape} and "
                f"{'uint8' if form.is_bytes else 'float32'}, as other samples have. image_size= brings images to one "
                "size"
            )
        return values


@dataclass(frozen=True)
class Known:
    """What is known of all samples."""

    labels: NDArray[np.int64] | None = None
    weights: Weights | None = None
    is_random: bool = False


def sample_source(
    samples: Any, wanted: Wanted, channels: Channels | None, image_size: tuple[int, int] | None, what: str
) -> tuple[Source, Channels, tuple[str, ...], tuple[str, ...]]:
    """The source, where its channels were, names of the classes, and remarks about what was understood."""
    if not len(samples):
        raise DataError(f"{what} is empty: expected at least one sample")
    picks = np.unique(np.linspace(0, len(samples) - 1, min(_NUM_PROBED, len(samples))).astype(np.int64)).tolist()
    probes = [split_item(samples[index], f"{what}[{index}]") for index in picks]
    form, remarks = _input_form([probe.inputs for probe in probes], wanted, channels, image_size, what)
    names = wanted.class_names or _class_names(samples)
    if wanted.num_classes is None and names and _is_class(probes[0].targets):
        wanted = replace(wanted, num_classes=len(names))
    targets, weights, more = _targets(samples, probes, picks, wanted, form, what)
    is_random = _changes(samples, picks[0], probes[0], what)
    if is_random:
        more.append(f"{what}: reading a sample twice gives different values (random transforms?): such a run cannot be "
                    "repeated or resumed to the bit; Ringlet's own augmentation can")  # fmt: skip
    all_known = len(targets.values) == len(samples) and targets.task == "classification"
    named = names if wanted.class_names or len(names) == targets.num_classes else targets.class_names
    form = replace(form, wanted=Wanted(targets.task, targets.num_classes, targets.class_names or named))
    known = Known(targets.values if all_known else None, weights, is_random)
    source: Source = SampleSource(samples, form, what, known)
    if not is_random:
        num_bytes = int(np.prod(form.input_shape)) * (1 if form.is_bytes else 4)
        source = cached(source, num_bytes + targets.values[:1].nbytes)
    return source, form.channels, form.wanted.class_names, (*remarks, *targets.remarks, *more)


# -- inputs -----------------------------------------------------------------------------------------------------------
def _input_form(
    inputs: Sequence[Any], wanted: Wanted, channels: Channels | None, image_size: tuple[int, int] | None, what: str
) -> tuple[Form, list[str]]:
    if is_picture(inputs[0]):
        count = 1 if all(is_picture(picture) and is_grey(picture) for picture in inputs) else 3
        width, height = inputs[0].size
        return Form((count, *(image_size or (height, width))), "last", True, wanted, image_size), []
    first = as_array(inputs[0], f"{what}[0]")
    check_inputs(first[None], f"{what}[0]")
    values, found, remarks = as_images(first[None], channels, what)
    shape = tuple(values.shape[1:])
    if image_size is not None and len(shape) == 3:
        shape = (shape[0], *image_size)
    return Form(shape, found, first.dtype == np.uint8, wanted, image_size), remarks


def _plain_input(value: Any, form: Form, what: str) -> NDArray[Any]:
    """One input with its channels first, in its size or the one that was asked for."""
    if is_picture(value):
        picture = value
        if form.image_size is not None:
            picture = picture.convert("RGB" if form.input_shape[0] == 3 else "L")
            picture = picture.resize(form.image_size[::-1], resample=2)
        return picture_values(picture, form.input_shape[0])
    array = as_array(value, what)
    is_image = len(form.input_shape) == 3
    if array.ndim == 0:
        array = array[None]
    if is_image and array.ndim == 2:
        array = array[None]
    elif is_image and array.ndim == 3 and form.channels == "last":
        array = np.moveaxis(array, 2, 0)
    array = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    if form.image_size is not None and array.ndim == 3 and array.shape[1:] != form.image_size:
        array = resize_images(array[None], form.image_size)[0]
    return array


# -- targets ----------------------------------------------------------------------------------------------------------
def _targets(
    samples: Any, probes: Sequence[Item], picks: Sequence[int], wanted: Wanted, form: Form, what: str
) -> tuple[Targets, Weights | None, list[str]]:
    """The targets of all samples if they are known or needed, else of the probes; and the weights of all."""
    size = (form.input_shape[1], form.input_shape[2]) if len(form.input_shape) == 3 else None
    few = _stacked([probe.targets for probe in probes], what, form.image_size)
    is_class = _is_class(probes[0].targets) and wanted.task in (None, "classification")
    known = _listed_targets(samples, few, picks) if is_class else None
    has_weights = probes[0].weights is not None
    if known is not None and not has_weights:
        return understand(known, wanted, size, what), None, []
    if not has_weights and (not is_class or wanted.num_classes is not None):
        return understand(few, wanted, size, what), None, []
    items = [split_item(samples[index], f"{what}[{index}]") for index in range(len(samples))]
    every = _stacked([item.targets for item in items], what, form.image_size)
    weights = None
    if has_weights:
        weights = as_weights([item.weights for item in items], len(items), what)
    why = "weights" if has_weights else "classes; num_classes= makes that unnecessary"
    return understand(every, wanted, size, what), weights, [f"{what}: all samples were read once for their {why}"]


def as_weights(values: Any, count: int, what: str) -> Weights:
    """Weights of samples as float32 (n,), checked: finite, none below zero, not all zero."""
    weights = as_array(values, f"{what}: weights")
    if weights.shape == (count, 1):
        weights = weights[:, 0]
    if weights.shape != (count,) or weights.dtype.kind not in "biuf":
        raise DataError(f"{what}: weights of shape {weights.shape} for {count:,} samples: expected one number for each")
    weights = weights.astype(np.float32)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DataError(f"{what}: weights from {weights.min()} to {weights.max()}: expected 0 or more, not all 0")
    return weights


def _is_class(target: Any) -> bool:
    """Whether a target is one class: an integer or a text."""
    if isinstance(target, str):
        return True
    kind = as_array(target, "target") if not is_picture(target) else None
    return kind is not None and kind.size == 1 and kind.ndim <= 1 and kind.dtype.kind in "biuUS"


def _stacked(targets: Sequence[Any], what: str, image_size: tuple[int, int] | None) -> NDArray[Any]:
    if image_size is not None and is_picture(targets[0]):
        targets = [target.resize(image_size[::-1], resample=0) for target in targets]
    return as_array(list(targets), f"{what}: targets")


def _listed_targets(samples: Any, few: NDArray[Any], picks: Sequence[int]) -> NDArray[Any] | None:
    """The targets of all samples as the data set lists them, if that agrees with samples that were read."""
    for listed in _candidates(samples):
        try:
            values = as_array(listed, "targets")
        except DataError:
            continue
        if values.shape == (len(samples),) and np.array_equal(values[picks], few.reshape(len(picks), -1)[:, 0]):
            return values
    return None


def _candidates(samples: Any) -> list[Any]:
    """Lists of targets by the conventions of torchvision, of its subsets, and of Hugging Face."""
    found = [getattr(samples, name) for name in _TARGET_ATTRIBUTES if hasattr(samples, name)]
    columns = getattr(samples, "column_names", None)
    if isinstance(columns, list):
        found += [samples[name] for name in TARGET_NAMES if name in columns]
    inner, indices = getattr(samples, "dataset", None), getattr(samples, "indices", None)
    if inner is not None and isinstance(indices, Sequence | np.ndarray):
        for listed in _candidates(inner):
            try:
                found.append(as_array(listed, "targets")[np.asarray(indices)])
            except (DataError, IndexError, ValueError):
                continue
    return found


def _class_names(samples: Any) -> tuple[str, ...]:
    """The names of the classes by the conventions of torchvision and Hugging Face."""
    names = getattr(samples, "classes", None)
    features: Any = getattr(samples, "features", None)
    if names is None and hasattr(features, "get"):
        names = next((features[key].names for key in TARGET_NAMES if hasattr(features.get(key), "names")), None)
    if names is None and hasattr(samples, "dataset") and hasattr(samples, "indices"):
        return _class_names(samples.dataset)
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list and names is not None else ()


def _changes(samples: Any, index: int, before: Item, what: str) -> bool:
    """Whether the sample has changed since it was read."""
    again = split_item(samples[index], f"{what}[{index}]")
    pairs = [(before.inputs, again.inputs), (before.targets, again.targets)]
    return not all(np.array_equal(as_array(one, what), as_array(other, what)) for one, other in pairs)
