"""Loading a data set: its format finds the parts, then size limit, resizing and validation split apply to all alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet import plugins
from ringlet.data import partition
from ringlet.data.balance import imbalance
from ringlet.data.formats import DATASETS, DatasetFormat
from ringlet.data.normalization import IMAGENET, SYMMETRIC, Normalization
from ringlet.data.requests import Dataset, Parts, Request
from ringlet.data.source import ResizedSource, Source, SubsetSource, labels_of
from ringlet.data.table_schema import Schema
from ringlet.errors import ConfigError

_DEFAULT_SPLIT = 0.1


def load_dataset(
    name: str | DatasetFormat,
    *,
    input_shape: tuple[int, ...] | None = None,
    num_classes: int | None = None,
    seed: int = 0,
    stratified: bool = True,
    table: Schema | None = None,
    **options: Any,
) -> Dataset:
    """A data set by name (see :func:`dataset_names`), or ``KIND:PATH`` with KIND npz, folder, masks, idx, imagenet ….

    ``options`` are those of its format: ``path`` holds training and test data; ``train_path`` and ``test_path``
    override it for their part. Without any, mnist, fashion-mnist and cifar come from the cache. ``image_size`` resizes
    (bilinear; masks nearest). ``num_samples`` limits the training part to so many, chosen by ``seed`` (synthetic data
    and shapes: makes so many).

    ``validation_split`` in [0, 1) (default 0) holds that share of the training part out, chosen by ``seed``; with
    ``test_as_validation`` the test part serves instead and nothing is held out. With 0, the data set's own validation
    part serves if there is one; otherwise validation is None. With None it serves too, and without one a tenth is held
    out. Of people's own files each class is held out in proportion and keeps at least one sample for training, unless
    ``stratified`` is False; samples of other data sets are chosen from all alike.

    ``table`` is the schema of a model that the rows of a table are meant for: its columns, texts and classes.
    """
    if isinstance(name, str):
        options = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
        kind, given = DATASETS.split(name)
        chosen: DatasetFormat = DATASETS.create(kind, **{"validation_split": 0.0, **given, **_set(options)})
        label = name
    else:
        chosen = name.replace(**options) if options else name
        label = chosen.label
    request = Request(
        name=chosen.name,
        path=_as_path(chosen.path),
        train_path=_as_path(chosen.train_path),
        test_path=_as_path(chosen.test_path),
        input_shape=None if input_shape is None else _positive("input_shape", *input_shape),
        num_classes=None if num_classes is None else _positive("num_classes", num_classes)[0],
        num_samples=chosen.num_samples,
        seed=seed,
        image_size=None if chosen.image_size is None else (chosen.image_size[0], chosen.image_size[1]),
        table=table,
        skip_broken=getattr(chosen, "skip_broken", False),
        task=getattr(chosen, "targets", None),
    )
    parts = chosen.load(request)
    if not isinstance(parts, Parts):
        raise plugins.not_a("datasets", chosen.name, "a format whose load gives Parts")
    return assembled(parts, chosen, request, label, stratified=stratified and chosen.origin == "your files")


def assembled(parts: Parts, chosen: DatasetFormat, request: Request, label: str, *, stratified: bool) -> Dataset:
    """The data set made of the parts that were found: limited, resized, checked and split as ``chosen`` says."""
    limited = _resized(_limited(parts, request), chosen, request)
    _check_shape(limited.train, request)
    labels = labels_of(limited.train) if stratified else None
    train, validation = _with_validation(
        limited, request.seed, chosen.validation_split, chosen.test_as_validation, labels
    )
    normalization = limited.normalization if limited.fit is None else limited.fit(train)
    table = limited.table
    if table is not None and limited.fit is not None:
        table = replace(table, fill=normalization.mean)
    return Dataset(
        label,
        train,
        validation,
        limited.test,
        limited.class_names,
        _normalization(chosen, limited) if chosen.normalization != "auto" else normalization,
        (*limited.remarks, *_imbalance(train, limited.class_names)) if stratified else limited.remarks,
        is_stratified=labels is not None and train is not limited.train,
        channels=limited.channels,
        table=table,
    )


def _imbalance(train: Source, class_names: tuple[str, ...]) -> list[str]:
    labels = labels_of(train)
    return [] if labels is None else imbalance(np.bincount(labels).tolist(), class_names)


def _set(options: dict[str, Any]) -> dict[str, Any]:
    """Options without paths that are not given; a split of None means something else than none at all."""
    return {name: value for name, value in options.items() if value is not None or name == "validation_split"}


def dataset_names() -> list[str]:
    """The names :func:`load_dataset` knows by itself; plugins (:mod:`ringlet.plugins`) may add others."""
    return DATASETS.names()


def _as_path(path: Path | str | None) -> Path | None:
    return None if path is None or path == "" else Path(path).expanduser()


def _positive(name: str, *values: int) -> tuple[int, ...]:
    if not values or min(values) < 1:
        raise ConfigError(f"{name} = {values}: expected positive numbers")
    return tuple(int(value) for value in values)


def _limited(parts: Parts, request: Request) -> Parts:
    count, available = request.num_samples, len(parts.train)
    if count is None or parts.complete or count == available:
        return parts
    if count > available:
        raise ConfigError(
            f"num_samples = {count}, but '{request.name}' has {available} training samples: ask for fewer"
        )
    chosen = partition.split_indices(available, request.seed, count)[1]
    return replace(parts, train=SubsetSource(parts.train, chosen))


def _resized(parts: Parts, chosen: DatasetFormat, request: Request) -> Parts:
    if request.image_size is None or chosen.sizes_itself:
        return parts
    size = request.image_size

    def resized(source: Source) -> Source:
        return source if source.input_shape[1:] == size else ResizedSource(source, size)

    test, validation = (None if source is None else resized(source) for source in (parts.test, parts.validation))
    return replace(parts, train=resized(parts.train), test=test, validation=validation)


def _normalization(chosen: DatasetFormat, parts: Parts) -> Normalization:
    """The data set's own, or one by name of values that its scale brings to 0 … 1."""
    if chosen.normalization == "auto":
        return parts.normalization
    named = IMAGENET if chosen.normalization == "imagenet" else SYMMETRIC
    channels = parts.train.input_shape[0]
    if len(named.mean) not in (1, channels):
        raise ConfigError(
            f"normalization = {chosen.normalization} is for {len(named.mean)} channels, '{chosen.label}' has "
            f"{channels}: leave it out, or give symmetric"
        )
    return replace(named, scale=parts.normalization.scale)


def _check_shape(source: Source, request: Request) -> None:
    if request.input_shape is not None and source.input_shape != request.input_shape:
        raise ConfigError(
            f"'{request.name}' has inputs of shape {source.input_shape}, but {request.input_shape} was asked for: "
            "leave input_shape out, or give image_size to resize the images"
        )


def _with_validation(
    parts: Parts,
    seed: int,
    validation_split: float | None,
    test_as_validation: bool,
    labels: NDArray[np.int64] | None,
) -> tuple[Source, Source | None]:
    if validation_split is None:
        validation_split = _DEFAULT_SPLIT if parts.validation is None else 0.0
    if not 0.0 <= validation_split < 1.0:
        raise ConfigError(f"validation_split = {validation_split}: expected a share of at least 0 and below 1")
    if test_as_validation:
        if parts.test is None:
            raise ConfigError("test_as_validation needs test data, and there is none: give a test path or a split")
        return parts.train, parts.test
    if validation_split == 0.0:
        return parts.train, parts.validation
    total = len(parts.train)
    num_held_out = round(total * validation_split)
    if not 0 < num_held_out < total:
        raise ConfigError(
            f"validation_split = {validation_split} of {total} samples leaves {total - num_held_out} for training and "
            f"{num_held_out} for validation: expected at least one each. Give another share, or 0 for no validation"
        )
    if labels is None:
        kept, held_out = partition.split_indices(total, seed, num_held_out)
    else:
        kept, held_out = partition.split_by_class(labels, seed, num_held_out)
    if not len(held_out):
        raise ConfigError(
            f"validation_split = {validation_split}: every class has a single sample, which stays for training. Give 0 "
            "for no validation, or validation data of their own"
        )
    return SubsetSource(parts.train, kept), SubsetSource(parts.train, held_out)
