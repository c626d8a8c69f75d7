"""A data set made of what a Python program has: arrays, data sets of PyTorch, batches of Keras, tf.data, tables, ….

:func:`as_dataset` finds out what it is given, makes sources of it, and says in remarks what was understood. From there
on it is a data set like any other: split, resized and limited by the same options, sharded by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import loaders
from ringlet.data.collecting import Collector, default_limit
from ringlet.data.formats import GivenDataset
from ringlet.data.items import INPUT_NAMES, Item, split_mapping
from ringlet.data.normalization import BYTES, Normalization
from ringlet.data.registry import assembled
from ringlet.data.requests import PART_NAMES, Dataset, Parts, Request
from ringlet.data.samples import as_weights, sample_source
from ringlet.data.source import Source, Task
from ringlet.data.targets import TargetedArrays, Wanted, understand
from ringlet.data.values import (
    Channels,
    as_array,
    as_images,
    check_inputs,
    is_array_like,
    is_instance_of,
    type_name,
    value_range,
)
from ringlet.errors import ConfigError, DataError

_ACCEPTED = (
    "expected (x, y) or (x, y, weights) of arrays, a mapping with such names, an object with __getitem__ and __len__ "
    "that gives samples (x, y), a DataLoader, a tf.data.Dataset, a Keras PyDataset, a table with target=, or a "
    "generator"
)


def as_dataset(
    train: Any,
    validation: Any = None,
    test: Any = None,
    *,
    name: str = "",
    task: Task | None = None,
    channels: Channels | None = None,
    batched: bool | None = None,
    target: str | tuple[str, ...] | None = None,
    class_names: Iterable[str] = (),
    num_classes: int | None = None,
    seed: int = 0,
    max_bytes: int | None = None,
    **options: Any,
) -> Dataset:
    """A data set of objects of a program; ``validation`` and ``test`` may be of other kinds than ``train``.

    ``task`` decides what targets mean where that is not as it looks, ``channels`` (first or last) where images have
    theirs, ``batched`` whether the items of an iterable are batches, ``target`` which columns of a table are to be
    predicted. What can only be read in order is read into memory once, ``max_bytes`` at most (default: half of the free
    memory). ``options`` are those of any data set: ``validation_split``, ``test_as_validation``, ``num_samples``,
    ``image_size``.
    """
    chosen = GivenDataset(title_given=name or title(train), **{"validation_split": 0.0, **options})
    wishes = Wishes(
        Wanted(task, num_classes, tuple(class_names)),
        channels,
        batched,
        (target,) if isinstance(target, str) else tuple(target or ()),
        max_bytes or default_limit(),
    )
    return load_given(train, validation, test, chosen, wishes, seed=seed)


@dataclass(frozen=True)
class Wishes:
    """How data are to be understood; see :func:`as_dataset`."""

    wanted: Wanted = field(default_factory=Wanted)
    channels: Channels | None = None
    batched: bool | None = None
    target: tuple[str, ...] = ()
    max_bytes: int = field(default_factory=default_limit)


def title(data: Any) -> str:
    """What data are called in messages and in the configuration of a run."""
    if isinstance(data, Dataset):
        return data.name
    inner = loaders.dataset_of(data)
    if isinstance(inner, tuple | list | dict) or is_array_like(inner):
        return "arrays"
    return type(inner).__name__


def load_given(train: Any, validation: Any, test: Any, chosen: GivenDataset, wishes: Wishes, *, seed: int) -> Dataset:
    """See :func:`as_dataset`; ``chosen`` has the options of all data sets."""
    if isinstance(train, Dataset):
        return _with_parts(train, validation, test, chosen, wishes)
    parts = _divided(train)
    for part, given in (("validation", validation), ("test", test)):
        if given is not None and part in parts:
            raise ConfigError(f"{part} data are given twice: as {part}= and within the training data. Give them once")
    parts |= {part: given for part, given in (("validation", validation), ("test", test)) if given is not None}
    size = None if chosen.image_size is None else (chosen.image_size[0], chosen.image_size[1])
    if _is_table(parts["train"]):
        found = _tables(parts, wishes)
    else:
        if wishes.target:
            raise ConfigError(f"target = {', '.join(wishes.target)} names columns of a table, not of {title(train)}")
        found = _sources(parts, chosen, wishes, size)
    request = Request("given", seed=seed, num_samples=chosen.num_samples, image_size=size)
    return assembled(found, chosen, request, chosen.label, stratified=True)


def _with_parts(dataset: Dataset, validation: Any, test: Any, chosen: GivenDataset, wishes: Wishes) -> Dataset:
    """A data set of Ringlet as it is, perhaps with other data for validation and test."""
    decided = ("validation_split", "test_as_validation", "num_samples", "image_size")
    if given := [name for name in decided if getattr(chosen, name) not in (None, False)]:
        raise ConfigError(
            f"{given[0]} cannot change a data set that is given as an object: give it to load_dataset or as_dataset, "
            "which make one"
        )
    wanted = Wanted(dataset.task, dataset.num_classes, dataset.class_names)
    wishes = replace(wishes, wanted=wanted)
    for part, data in (("validation", validation), ("test", test)):
        if data is not None:
            found = _source(data, wishes, None, None, part)
            _check_same(found.source, dataset.train, part)
            parts: dict[str, Any] = {part: found.source}
            dataset = replace(dataset, **parts)
    return dataset


# -- parts ------------------------------------------------------------------------------------------------------------
def _divided(data: Any) -> dict[str, Any]:
    """What one object holds: training data alone, or several parts by name."""
    if not isinstance(data, Mapping):
        _refuse_pairs_of_pairs(data)
        return {"train": data}
    lower = {str(name).lower(): name for name in data}
    named = {part: next((lower[name] for name in names if name in lower), None) for part, names in PART_NAMES.items()}
    if named["train"] is not None:
        return {part: data[name] for part, name in named.items() if name is not None}
    parts: dict[str, Any] = {}
    for part, names in PART_NAMES.items():
        for prefix, suffix in [("", f"_{name}") for name in names] + [(f"{name}_", "") for name in names]:
            if any(f"{prefix}{known}{suffix}" in lower for known in INPUT_NAMES):
                parts[part] = split_mapping(data, "the mapping", prefix, suffix)
    return parts if "train" in parts else {"train": data}


def _refuse_pairs_of_pairs(data: Any) -> None:
    """What ``load_data()`` of Keras gives is training and test data at once."""
    is_pair = isinstance(data, tuple) and len(data) == 2 and not isinstance(data, Item)
    if is_pair and all(isinstance(part, tuple) and len(part) == 2 and is_array_like(part[0]) for part in data):
        raise DataError(
            "a pair of pairs of arrays looks like (train, test): give the first as training data, and test="
        )


def _sources(parts: Mapping[str, Any], chosen: GivenDataset, wishes: Wishes, size: tuple[int, int] | None) -> Parts:
    """Sources of all parts; what the targets mean follows from the training part."""
    train = _source(parts["train"], wishes, size, chosen.num_samples, "train")
    told = replace(
        wishes,
        wanted=Wanted(train.source.task, train.source.num_classes, train.class_names),
        channels=train.channels if len(train.source.input_shape) == 3 and wishes.channels else wishes.channels,
    )
    others: dict[str, Source] = {}
    for part in ("validation", "test"):
        if part in parts:
            found = _source(parts[part], told, size, None, part)
            _check_same(found.source, train.source, part)
            others[part] = found.source
    return Parts(
        train.source,
        others.get("test"),
        others.get("validation"),
        class_names=train.class_names,
        normalization=train.normalization,
        complete=train.complete,
        remarks=tuple(dict.fromkeys(train.remarks)),
        channels=train.channels,
    )


def _check_same(source: Source, train: Source, part: str) -> None:
    if source.input_shape != train.input_shape or source.task != train.task:
        raise DataError(
            f"{part} data: inputs of shape {source.input_shape} ({source.task}), the training data have "
            f"{train.input_shape} ({train.task}): expected the same"
        )


# -- one part ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Found:
    """A source, and what was understood of it. ``complete``: it has no more samples than were asked for."""

    source: Source
    class_names: tuple[str, ...] = ()
    normalization: Normalization = field(default_factory=Normalization)
    channels: Channels = "first"
    remarks: tuple[str, ...] = ()
    complete: bool = False


def _source(data: Any, wishes: Wishes, size: tuple[int, int] | None, num_samples: int | None, part: str) -> Found:
    """The source of any data, by what they are."""
    inner, remarks = loaders.unwrapped(data, f"{part} data")
    what = f"{part} data"
    if _is_source(inner):
        return Found(inner, wishes.wanted.class_names, Normalization(), remarks=tuple(remarks))
    if isinstance(inner, Mapping):
        inner = split_mapping(inner, what)
    if isinstance(inner, Item) or _is_pair(inner):
        return _arrays(Item(*inner), wishes, what, remarks)
    _check_is_data(inner, what)
    stream = loaders.stream_of(inner, num_samples, what)
    if stream is None and _has_items(inner):
        source, channels, names, more = sample_source(inner, wishes.wanted, wishes.channels, size, what)
        is_bytes = source.read(np.zeros(1, np.int64))[0].dtype == np.uint8
        return Found(source, names, BYTES if is_bytes else Normalization(), channels, (*remarks, *more))
    items, batched = (inner, None) if stream is None else stream
    collector = Collector(what, batched if wishes.batched is None else wishes.batched, wishes.max_bytes, num_samples)
    inputs, targets, weights = collector.collect(items)
    collector.remarks.insert(0, f"{what}: {len(inputs):,} samples of {type_name(inner)} were read into memory once")
    found = _arrays(Item(inputs, targets, weights), wishes, what, [*remarks, *collector.remarks])
    return Found(found.source, found.class_names, found.normalization, found.channels, found.remarks, complete=True)


def _check_is_data(data: Any, what: str) -> None:
    is_readable = isinstance(data, Iterable) or _has_items(data)
    if isinstance(data, str | bytes) or not is_readable:
        raise TypeError(f"{what}: {type_name(data)} is not data that can be trained on: {_ACCEPTED}")
    if is_array_like(data) and not isinstance(data, list):
        raise TypeError(f"{what}: an array of shape {np.shape(data)} without targets: {_ACCEPTED}")


def _is_pair(data: Any) -> bool:
    """Whether it is ``(x, y)`` or ``(x, y, weights)`` of arrays, not a list of that many samples."""
    return isinstance(data, tuple | list) and len(data) in (2, 3) and all(map(is_array_like, data))


def _is_source(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("read", "input_shape", "task", "num_classes", "__len__"))


def _has_items(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | bytes | tuple)


def _arrays(item: Item, wishes: Wishes, what: str, remarks: list[str]) -> Found:
    inputs, targets = as_array(item.inputs, f"{what}: x"), as_array(item.targets, f"{what}: y")
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise DataError(f"{what}: x has shape {inputs.shape}, y {targets.shape}: expected as many targets as inputs")
    check_inputs(inputs, f"{what}: x")
    images, channels, more = as_images(inputs, wishes.channels, f"{what}: x")
    size = (images.shape[2], images.shape[3]) if images.ndim == 4 else None
    understood = understand(targets, wishes.wanted, size, f"{what}: y")
    weights = None if item.weights is None else as_weights(item.weights, len(inputs), what)
    source = TargetedArrays(images, understood, weights, what)
    is_bytes = inputs.dtype == np.uint8
    return Found(
        source,
        understood.class_names,
        BYTES if is_bytes else Normalization(),
        channels,
        (*remarks, *more, *understood.remarks, *_range_remark(images, what)),
    )


def _range_remark(images: NDArray[Any], what: str) -> list[str]:
    """Numbers that look like bytes but are not: they are not scaled."""
    if images.ndim != 4 or images.dtype == np.uint8:
        return []
    low, high = value_range(images)
    if low < 0 or not 2 < high <= 255:
        return []
    return [
        f"{what}: x has values from {low:g} to {high:g} of type {images.dtype}, which are used as they are: bytes "
        "(uint8) would be divided by 255"
    ]


# -- tables -----------------------------------------------------------------------------------------------------------
def _is_table(data: Any) -> bool:
    """Whether it has named columns: a data frame of pandas or polars, a table of Arrow."""
    known = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table"))
    return any(is_instance_of(data, module, name) for module, name in known)


def _tables(parts: Mapping[str, Any], wishes: Wishes) -> Parts:
    from ringlet.data.tables import Columns, TableOptions, table_parts

    options = TableOptions(wishes.target, wishes.wanted.task)
    columns = {part: Columns.of_frame(data, f"{part} data") for part, data in parts.items()}
    return table_parts(columns["train"], columns.get("test"), columns.get("validation"), options)
